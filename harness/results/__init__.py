"""Results: what a run's files come to, `result.json`, its schema, and the machine it was measured on."""
