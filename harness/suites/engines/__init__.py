"""`./inv compare-engines`: this runtime, Spark, Flink and Kafka Streams on one count, under one oracle."""
