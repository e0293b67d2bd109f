"""A Flink cluster of this machine with a job that counts keys."""
