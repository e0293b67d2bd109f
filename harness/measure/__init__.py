"""Measuring: histograms, windows and durations from a run's files, and the memory sampler."""
