"""State as a user reads it: without the query's code, from a checkpoint."""
