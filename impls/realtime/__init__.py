"""Real-time mode without Spark: long-lived tasks that route and own state, turn by turn, and the driver's side."""
