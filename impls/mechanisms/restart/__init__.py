"""Restart: stop the query, move its state, start it again."""
