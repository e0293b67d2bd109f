"""The report of an experiment: one HTML file that needs nothing else."""
