"""Kafka Streams applications that count keys."""
