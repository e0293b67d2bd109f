"""Apache Flink as a baseline: what it runs is in `harness.lab.engines.flink`."""
