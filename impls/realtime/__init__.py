"""Real-time mode without Spark: long-lived tasks that route and own state, commit by commit, and the driver's side."""
