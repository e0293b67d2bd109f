"""Bins between hosts: a process on each host that hands them out over Arrow Flight, and the client that pulls them."""
