"""The oracle: reads both topics with its own client, recomputes the answer from scratch and says whether it was right.

Nothing of the pipeline is used here, not even its hashing: what both shared, neither could catch.
"""

from harness.oracle.bins import dense_bins, hash_bins
from harness.oracle.columns import OracleError
from harness.oracle.run import check_run

__all__ = ["OracleError", "check_run", "dense_bins", "hash_bins"]
