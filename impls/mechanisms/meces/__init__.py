"""Meces: state fetched on demand, in the order of need."""
