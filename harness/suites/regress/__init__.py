"""Whether a change has made the tail worse: two revisions run in turns on one machine."""
