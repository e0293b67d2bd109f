"""The driver's side of a query: plans made durable, epochs run and observed, commands taken. No Spark."""
