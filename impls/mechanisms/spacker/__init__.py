"""Spacker: chunks of bins, in an order, some with replicas."""
