"""The conformance suite: what every mechanism must show, found by glob, in a simulator and on Spark."""
