"""The query in Spark's real-time mode: its settings, its two steps, and the runner that keeps it running."""
