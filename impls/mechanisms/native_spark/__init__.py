"""Spark's own stateful count and its restart: what there is without this project."""
