"""What is decided, in views, plans, observations and events. Pure: no Spark, no clock, no files."""
