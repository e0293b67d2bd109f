"""Fault tests: real processes that are killed, stopped or robbed of their files, judged by the oracle."""
