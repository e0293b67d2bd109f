"""Spark's StatefulProcessor, unchanged, as a keyed operator of this runtime."""
