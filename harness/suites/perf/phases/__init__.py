"""Where an epoch's time goes: Spark's own account of it, the driver's and the workers', put together."""
