"""A real-time query in one process, faults included, from one seed: everything is real but Spark, Kafka and time."""
