"""One epoch of one worker: open, pull, apply, commit, log, send, report. No Spark."""
