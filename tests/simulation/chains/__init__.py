"""Two queries, the second of which reads the results of the first, simulated."""
