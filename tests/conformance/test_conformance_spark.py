"""On real Spark and Kafka a selection of the product in which every pair of values occurs."""

import pytest

from harness.lab.redis_server import RedisServer
from harness.suites.conformance.cases import Tour, all_cases, pairs, tours
from harness.suites.conformance.query import TourPlace, run_tour

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis"), "none") as running:
        yield running.url


@pytest.mark.capability("megaphone-batched/hash/zipf")
@pytest.mark.parametrize("tour", tours(pairs(all_cases())), ids=str)
def test_every_scenario_is_valid_within_its_bound(tour: Tour, spark, kafka, redis, tmp_path):
    name = f"conformance-{str(tour).replace('/', '-')}"
    rows = run_tour(tour, tmp_path / "run", TourPlace(spark, kafka, name, redis))
    assert [row.scenario for row in rows] == list(tour.scenarios)
    assert [row for row in rows if not row.good] == []
