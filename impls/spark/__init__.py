"""Everything that knows Spark: columns, the step, sessions, and the query that calls the driver epoch by epoch."""
