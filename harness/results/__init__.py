"""Results: the summary of a run's files, `result.json`, its schema, and the machine it was measured on."""
