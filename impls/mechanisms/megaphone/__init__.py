"""Megaphone: planned moves at epoch boundaries."""
