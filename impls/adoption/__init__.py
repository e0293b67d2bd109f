"""Adopting the checkpoint of a stopped Spark query: a checkpoint of this project's is made from it, which goes on."""
