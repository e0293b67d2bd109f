"""A Spark cluster of several hosts on this machine: started, watched, disturbed, and gone with whoever started it."""
