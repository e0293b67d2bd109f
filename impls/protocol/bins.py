"""How many bins there may be."""

from impls.errors import UsageError

__all__ = ["MAX_BINS", "check_bins"]

MAX_BINS = 1 << 14


def check_bins(bins: int, workers: int) -> int:
    """Returns log2(bins); raises UsageError when bins is not a power of two in 2..16384 or below the workers."""
    if bins < 2 or bins > MAX_BINS or bins & (bins - 1):
        raise UsageError(f"The number of bins must be a power of two from 2 to {MAX_BINS}, not {bins}.")
    if bins < workers:
        raise UsageError(f"{bins} bins are too few for {workers} workers: give at least one bin per worker.")
    return bins.bit_length() - 1
