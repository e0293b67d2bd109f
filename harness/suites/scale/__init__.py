"""Simulation of migrations at sizes that run nowhere here: the real mechanisms over workers that only cost time."""
