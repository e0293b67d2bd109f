"""The oracle: reads both topics with its own client, recomputes the answer from scratch and says whether it was right.

Nothing of the pipeline is used here, not even its hashing: what both shared, neither could catch.
"""
