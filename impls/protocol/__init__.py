"""What is decided, and the words in which it is said: views, plans, observations, events. Pure: no Spark, clock or files."""
