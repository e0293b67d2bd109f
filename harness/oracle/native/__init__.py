"""Runs of Spark's own stateful query: started, checked and measured as the others are, with its own form of results."""
