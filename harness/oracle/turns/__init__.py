"""The oracle where results are numbered by a worker's turns and not by epochs: Spark's real-time mode."""
