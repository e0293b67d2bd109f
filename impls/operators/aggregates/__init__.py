"""Spark's aggregates by key: count, sum, min, max and avg, computed on columns."""
