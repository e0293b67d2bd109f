"""The migration mechanisms, and the baselines on the state of Spark itself: one folder each, found by glob."""
