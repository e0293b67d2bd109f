"""The decisions: views, plans, observations and events. Pure: no Spark, no clock, no files."""
