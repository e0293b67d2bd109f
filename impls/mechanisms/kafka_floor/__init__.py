"""What Kafka itself costs: a consumer, a dictionary and a producer in one process."""
