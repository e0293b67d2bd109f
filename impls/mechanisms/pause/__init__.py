"""Pausing what moves: partial pause and Order-Unaware."""
