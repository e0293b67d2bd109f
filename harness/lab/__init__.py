"""What a run needs around it: broker, Redis, child processes, faults armed in them, and waiting with a deadline."""
