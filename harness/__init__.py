"""The benchmark: experiments, runs, measuring, the oracle, results and the report."""
