"""Releasing a stopped query: a native checkpoint is made from its own, with which a Spark query of the user goes on."""
