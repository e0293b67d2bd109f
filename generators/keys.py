"""Key samplers on counter-based random numbers: the key of record i is a function of (seed, i) alone.

The generator is splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure
17), evaluated at position i instead of step by step. Streams of one seed start at positions that are hashes themselves.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from generators.spec import GeneratorError, options_of, split_choice

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_ROUNDS = 6
_PERMUTING = 1 << 32  # the first stream of a permutation, apart from those that the key samplers draw from
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns splitmix64's finaliser of each value: a bijection of 64-bit words."""
    out = (values ^ (values >> np.uint64(30))) * _FIRST
    out = (out ^ (out >> np.uint64(27))) * _SECOND
    return out ^ (out >> np.uint64(31))


def draw(seed: int, stream: int, index: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns the 64 random bits of each index; any integer is a seed (taken modulo 2^64)."""
    return mix(index.astype(np.uint64) * np.uint64(_GOLDEN) + _origin(seed, stream))


def draw_unit(seed: int, stream: int, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns a number of [0, 1) for each index, a multiple of 2^-53."""
    return (draw(seed, stream, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _origin(seed: int, stream: int) -> NDArray[np.uint64]:
    inner = int(mix(np.array([seed & _MASK], np.uint64))[0])
    return mix(np.array([(inner + (stream + 1) * _GOLDEN) & _MASK], np.uint64))


class Permutation:
    """A seeded permutation of 0..size-1 that needs no table: a Feistel network, walked until inside.

    The network is over the next power of two. Each round adds (exclusive or) a hash of one half of the bits to the
    other half, which is its own inverse, so the network is a bijection of 2^bits for any hash. What lands at `size` or
    above goes through again ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002,
    section 3); fewer than half do.
    """

    def __init__(self, size: int, seed: int):
        self.size = size
        self._seed = seed
        bits = (size - 1).bit_length()
        self._low_bits = np.uint64(bits - bits // 2)
        self._low_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits // 2)) - 1)

    def __call__(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the image of each value; values must be of 0..size-1."""
        out = self._network(values)
        outside = np.flatnonzero(out >= self.size)
        while outside.size:
            out[outside] = self._network(out[outside])
            outside = outside[out[outside] >= self.size]
        return out

    def _network(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        word = values.astype(np.uint64)
        high, low = word >> self._low_bits, word & self._low_mask
        for turn in range(0, _ROUNDS, 2):
            high = high ^ (self._hash(turn, low) & self._high_mask)
            low = low ^ (self._hash(turn + 1, high) & self._low_mask)
        return ((high << self._low_bits) | low).astype(np.int64)

    def _hash(self, turn: int, half: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return draw(self._seed, _PERMUTING + turn, half.astype(np.int64)) >> np.uint64(32)


DISTRIBUTIONS = ("uniform", "zipf", "drift")
_KEYS_MAX = 1 << 40
EXPONENT_MAX = 10.0
_SUMMED_OCTAVES = 16
_DRIFT = {"keys": 0.0, "share": 0.9, "speed": 1000.0}  # keys=0: a hundredth of all
_SPEED_MAX = 1_000_000


class KeySampler(ABC):
    """at(index) gives the keys (0..keys-1) of any records; block(first, count) those of consecutive ones."""

    keys: int

    @abstractmethod
    def at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the key of each record number of `index`, in its order."""

    def block(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the keys of records first..first+count-1."""
        return self.at(np.arange(first, first + count, dtype=np.int64))


class UniformKeys(KeySampler):
    """Every key is equally likely (to within keys / 2^53)."""

    def __init__(self, keys: int, seed: int):
        self.keys = _checked_keys(keys)
        self.seed = seed

    def at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the key of each record number of `index`, in its order."""
        return (draw_unit(self.seed, 0, index) * self.keys).astype(np.int64)


class ZipfKeys(KeySampler):
    """The key of rank r (1..keys) has probability proportional to r^-exponent; the seed permutes ranks onto keys.

    The permutation spreads the hot keys over the bins. Draws are exact and need no table per key: a record's first
    number chooses the octave [2^j, 2^(j+1)) of its rank by the octaves' weights, then a rank is drawn evenly from the
    octave and kept with probability (2^j / rank)^exponent, otherwise drawn again. Try k of record i uses numbers 2k and
    2k+1 of that record, so a rejection shifts no other draw. The weights of the first 16 octaves are summed, the others
    integrated by the midpoint rule (relative error below 1e-8). A last digit that differs between processors' power
    functions moves a comparison of 53 bits, hardly ever a key.
    """

    def __init__(self, keys: int, exponent: float, seed: int):
        self.keys = _checked_keys(keys)
        if not 0 < exponent <= EXPONENT_MAX:  # false for NaN too
            raise GeneratorError(f"The Zipf exponent must be above 0 and at most {EXPONENT_MAX:g}, not {exponent}.")
        self.exponent = float(exponent)
        self.seed = seed
        self._permutation = Permutation(keys, seed)
        lows = [1 << j for j in range(keys.bit_length())]
        ends = [min(2 * low, keys + 1) for low in lows]
        weights = [_weight(low, end, self.exponent) for low, end in zip(lows, ends, strict=True)]
        self._low = np.array(lows, np.int64)
        self._width = np.array(ends, np.int64) - self._low
        self._cumulative = np.cumsum(weights) / math.fsum(weights)
        self._cumulative[-1] = 1.0

    def ranks(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rank (1 is the hottest) of each record's key."""
        octave = np.searchsorted(self._cumulative, draw_unit(self.seed, 0, index), side="right")
        low, width = self._low[octave], self._width[octave]
        ranks = np.empty(len(index), np.int64)
        pending, attempt = np.arange(len(index)), 1
        while pending.size:
            record, base = index[pending], low[pending]
            offset = draw_unit(self.seed, 2 * attempt, record) * width[pending]
            candidate = base + offset.astype(np.int64)
            kept = draw_unit(self.seed, 2 * attempt + 1, record) < (base / candidate) ** self.exponent
            ranks[pending[kept]] = candidate[kept]
            pending, attempt = pending[~kept], attempt + 1
        return ranks

    def at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the key of each record number of `index`, in its order."""
        return self._permutation(self.ranks(index) - 1)


class DriftKeys(KeySampler):
    """A share of the records goes to a hot set of neighbouring keys that moves through the key space.

    At record i the hot set begins `speed * i // 1000` keys behind its seeded origin, modulo the number of keys. A
    record's first number decides whether it is hot, its second picks a key of the hot set, or of all the others, each
    equally likely.
    """

    def __init__(self, keys: int, hot: int, share: float, speed: int, seed: int):
        self.keys = _checked_keys(keys)
        if not 1 <= hot < keys:
            raise GeneratorError(f"The hot set must have from 1 key to one less than all {keys}, not {hot}.")
        if not 0 < share <= 1:
            raise GeneratorError(f"The hot set's share of the records must be above 0 and at most 1, not {share:g}.")
        if not 0 <= speed <= _SPEED_MAX:
            raise GeneratorError(f"The hot set moves 0 to {_SPEED_MAX} keys per 1,000 records, not {speed}.")
        self.hot, self.share, self.speed, self.seed = hot, share, speed, seed
        self._origin = int(draw(seed, 2, np.zeros(1, np.int64))[0]) % keys

    def starts(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the first key of the hot set at each record number."""
        return (self._origin + index * self.speed // 1000) % self.keys

    def at(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the key of each record number of `index`, in its order."""
        is_hot = draw_unit(self.seed, 0, index) < self.share
        place = draw_unit(self.seed, 1, index)
        cold = self.hot + (place * (self.keys - self.hot)).astype(np.int64)
        return (self.starts(index) + np.where(is_hot, (place * self.hot).astype(np.int64), cold)) % self.keys


def make_keys(distribution: str, keys: int, exponent: float, seed: int) -> KeySampler:
    """Returns the sampler of a distribution: uniform, zipf (the only one with an exponent) or drift.

    `drift:keys=N,share=S,speed=V` has a hot set of N keys (a hundredth of all by default) that gets the share S of the
    records (0.9) and moves V keys per 1,000 records (1,000).

    Raises:
        GeneratorError: unknown distribution or option, or a number of keys, an exponent or an option out of range.
    """
    name, rest = split_choice(distribution)
    if name == "drift":
        return _drift(rest, keys, seed)
    if name not in DISTRIBUTIONS:
        raise GeneratorError(f"The key distribution {name!r} is unknown: use one of {', '.join(DISTRIBUTIONS)}.")
    options_of(rest, {}, f"the distribution {name!r}")
    return UniformKeys(keys, seed) if name == "uniform" else ZipfKeys(keys, exponent, seed)


def _drift(text: str, keys: int, seed: int) -> DriftKeys:
    options = options_of(text, _DRIFT, "the distribution 'drift'")
    for name in ("keys", "speed"):
        if options[name] != int(options[name]):
            raise GeneratorError(
                f"The option {name!r} of the distribution 'drift' is a whole number, not {options[name]}."
            )
    return DriftKeys(keys, int(options["keys"]) or max(1, keys // 100), options["share"], int(options["speed"]), seed)


def _checked_keys(keys: int) -> int:
    if not 1 <= keys <= _KEYS_MAX:
        raise GeneratorError(f"The number of keys must be from 1 to {_KEYS_MAX}, not {keys}.")
    return int(keys)


def _weight(low: int, end: int, exponent: float) -> float:
    """Returns the sum of r^-exponent over low <= r < end."""
    if low < 1 << _SUMMED_OCTAVES:
        return math.fsum(r**-exponent for r in range(low, end))
    start, ratio = low - 0.5, math.log((end - 0.5) / (low - 0.5))
    power = 1 - exponent
    # expm1 keeps its digits where the exponent is close to 1 and the plain difference of powers would lose them
    return ratio if power == 0 else start**power * math.expm1(power * ratio) / power
