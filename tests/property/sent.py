"""What shares of a stream send: together, and across restarts, the stream once."""

from hypothesis import strategies as st

from generators.stream import Share

FOREVER_US = 2**61


@st.composite
def splits(draw):
    """Draws (partitions, processes that share them evenly, records of a block at most)."""
    partitions = draw(st.integers(1, 12))
    of = draw(st.sampled_from([n for n in range(1, partitions + 1) if partitions % n == 0]))
    return partitions, of, draw(st.integers(1, 130))


def sent(stream, share, done, size, *end):
    """Returns records by partition, with their scheduled times."""
    out = {p: [] for p in share.own_partitions()}
    for block in stream.blocks(share, done, size, *end):
        assert 0 < len(block.values) <= size
        for value, partition, at in zip(block.values, block.partitions, block.scheduled_us.tolist(), strict=True):
            out[partition].append((value, at))
    return out


def check_shares_and_restarts(stream, records, split, data):
    """Asserts that the whole is `records` long, and that each share goes on with it from wherever it was stopped."""
    partitions, of, size = split
    whole = sent(stream, Share(0, 1, partitions), [0] * partitions, 1000)
    assert sum(len(part) for part in whole.values()) == records
    for number in range(of):
        share = Share(number, of, partitions)
        done = [
            data.draw(st.integers(0, len(whole[p]))) if p in share.own_partitions() else 0 for p in range(partitions)
        ]
        rest = sent(stream, share, done, size)
        assert rest == {p: whole[p][done[p] :] for p in share.own_partitions()}
        assert stream.records_left(share, done, FOREVER_US) == sum(len(part) for part in rest.values())
