"""Part adopted: the state of a stopped Spark query taken over, and rescaled while the query runs on."""
