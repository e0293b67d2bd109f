"""Sweeps: a grid of experiments, resumable, with the figures of the literature."""
