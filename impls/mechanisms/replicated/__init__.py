"""Replicated dataflow: the new owner processes the same records until it takes over."""
