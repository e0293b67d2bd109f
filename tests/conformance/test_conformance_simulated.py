"""The full product on the real driver and worker core, without Spark: what every mechanism must show."""

import pytest
from simulated_query import SimulatedQuery

from harness.lab.redis_server import RedisServer
from harness.suites.conformance.cases import Tour, all_cases, run_scenarios, tours


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis"), "none") as running:
        yield running.url


@pytest.mark.parametrize("tour", tours(all_cases()), ids=str)
def test_every_scenario_is_valid_within_its_bound(tour: Tour, tmp_path, redis):
    query = SimulatedQuery(tour, tmp_path / "run", redis)
    try:
        run_scenarios(tour, query)
        rows = query.rows()
    finally:
        query.close()
    assert [row.scenario for row in rows] == list(tour.scenarios)
    assert [row for row in rows if not row.good] == []
