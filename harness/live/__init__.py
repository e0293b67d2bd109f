"""What is known of runs while they go on: on the terminal and for Prometheus."""
