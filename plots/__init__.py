"""Figures of a result folder, from its files alone."""
