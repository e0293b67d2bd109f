"""One worker's state on disk: bins, entries, dense blocks, queues and outbox in one environment. No Spark."""
