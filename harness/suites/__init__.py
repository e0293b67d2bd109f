"""What can be asked for by name: bench, sweep, nexmark, perf, faults, conformance, regress, claims, scale."""
