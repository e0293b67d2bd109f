"""Costs of the simulator of large migrations in round numbers, with which its figures can be worked out by hand."""

from harness.suites.scale.network import Costs

__all__ = ["COSTS"]

COSTS = Costs(
    epoch_ms=100, response_ms=50, between_ms=10, worker_ms=0, record_us=0, slots=0, jitter=0, pull_bytes_s=1e6,
    pull_bin_ms=2, checkpoint_bytes_s=1e6, checkpoint_bin_ms=2, replica_bytes_s=1e6, replica_bin_ms=1,
    net_bytes_s=5e5, net_bin_ms=3, net_pull_ms=5, serve_bytes_s=1e9, serve_bin_ms=1, serve_pull_ms=1,
    log_record_bytes=10, query_s=0.5, application_s=5, external_record_us=0, external_bin_ms=1,
)  # fmt: skip
