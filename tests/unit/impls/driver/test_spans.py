"""A migration as spans of OpenTelemetry, looked at by the SDK's own exporter."""

import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from telling import BEGIN_US, epoch_record

from impls.driver.history import MigrationLog
from impls.driver.spans import MigrationSpans, tracer_of
from impls.errors import UsageError
from impls.protocol.events import MigrationBegun, MigrationDone
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan


@pytest.fixture
def traced(tmp_path):
    """take(record), and the spans that were made of what it got."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    (tmp_path / "rescale").mkdir()
    with MigrationLog(tmp_path / "rescale") as log:
        spans = MigrationSpans(tracer_of(provider), "orders", log.records)

        def take(record):
            log.take(record)
            spans.take(record)

        def finished():
            for thread in threading.enumerate():
                if thread.name == "rescale-spans":
                    thread.join(30)
            return exporter.get_finished_spans()

        yield take, finished
    provider.shutdown()


def epoch(number, *events):
    record = epoch_record(number, [1.0])
    plan = EpochPlan(np.zeros(8, np.int32), pulls=(Pull(1, 3, 0), Pull(2, 3, 0)))
    end = BEGIN_US + number * 1_000_000
    written = WrittenPlan(number, 0, 2, plan, migrating=True)
    return replace(record, written=written, events=events, begin_us=end - 500_000, end_us=end)


def begun(id_, number):
    return MigrationBegun(id_, "rescale to 2 workers", number, 2)


def test_a_migration_has_its_epochs_and_these_the_bins_that_were_pulled(traced):
    take, finished = traced
    take(epoch(1))
    take(epoch(2, begun("a", 2)))
    take(epoch(3, MigrationDone("a", 3)))
    take(epoch(4))
    spans = finished()
    assert [span.name for span in spans].count("rescale.bin") == 4
    (whole,) = (span for span in spans if span.name == "rescale.migration")
    assert whole.parent is None
    assert (whole.attributes["rescale.query"], whole.attributes["rescale.outcome"]) == ("orders", "done")
    assert (whole.end_time - whole.start_time, whole.attributes["rescale.moved_bins"]) == (1_500_000_000, 4)
    steps = [span for span in spans if span.name == "rescale.epoch"]
    assert [span.attributes["rescale.epoch"] for span in steps] == [2, 3]
    assert {span.parent.span_id for span in steps} == {whole.context.span_id}
    pull = next(span for span in spans if span.name == "rescale.bin")
    assert pull.parent.span_id == steps[0].context.span_id
    assert dict(pull.attributes) == {"rescale.bin": 1, "rescale.source": 3, "rescale.target": 0}


def test_a_migration_that_gives_way_ends_where_the_newer_one_begins(traced):
    take, finished = traced
    take(epoch(2, begun("a", 2)))
    take(epoch(3, MigrationDone("a", 3, superseded=True), begun("b", 3), MigrationDone("b", 3)))
    spans = [span for span in finished() if span.name == "rescale.migration"]
    outcomes = {span.attributes["rescale.id"]: span.attributes["rescale.outcome"] for span in spans}
    assert outcomes == {"a": "replaced", "b": "done"}


def test_an_exporter_that_fails_harms_nobody(traced, monkeypatch, caplog):
    take, finished = traced

    def fails(*_, **__):
        raise RuntimeError("no collector")

    monkeypatch.setattr(MigrationSpans, "_begin", fails)
    take(epoch(2, begun("a", 2), MigrationDone("a", 2)))
    assert finished() == ()
    assert "The spans of migration a are lost: RuntimeError: no collector" in caplog.text


def test_without_opentelemetry_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"install rescale-bench\[otel\]"):
        tracer_of(None)
