"""Claims: sentences with the experiment that shows each and the predicate that decides it; `./inv verify-claims`."""
