"""Rhino: replicas kept beside the stream, so that a move ships only the last delta."""
