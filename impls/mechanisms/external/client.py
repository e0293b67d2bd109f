"""The Redis server as a worker sees it: one connection per process, and the scripts that the server runs.

Packed, 1,000 entries are one argument per bin instead of 2,000, and one answer: a third less time on both sides.

Of a dense block only the words that have changed go to the store. A bin's blocks lie one behind the other in one Redis
string, because a field of a hash can only be written whole: a count that goes up would then write 4 KiB, to the server
and to its log.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from impls.addresses import shown
from impls.errors import StateError, UsageError
from impls.store.entries import BLOCK_BYTES
from impls.store.tables import DENSE

PASSWORD = "RESCALE_REDIS_PASSWORD"
_CONNECT_S = 5.0
_ANSWER_S = 60.0
_RETRIES = 6  # with the pauses below about 3 s: a server that starts again is waited for
_PAUSE_S, _PAUSE_MOST_S = 0.05, 1.0
_SCAN = 1000


def prefix(query: str) -> str:
    """Returns what all keys of a query begin with; the braces keep them on one node of a Redis cluster."""
    return f"rescale:{{{query}}}:"


@cache
def connect(url: str) -> Any:
    """Returns this process's client of a server, which connects when it is used; raises UsageError for a bad URL.

    A password that is not in the URL is in the environment of every host, so that it need not travel.
    """
    retry = Retry(ExponentialBackoff(cap=_PAUSE_MOST_S, base=_PAUSE_S), _RETRIES)
    login = os.environ.get(PASSWORD)
    try:
        return redis.Redis.from_url(
            url, retry=retry, protocol=2, socket_connect_timeout=_CONNECT_S, socket_timeout=_ANSWER_S, password=login
        )
    except ValueError as error:
        raise UsageError(f"{shown(url)} is no address of a Redis server: use redis://HOST:PORT.") from error


@cache
def script(url: str, text: str) -> Callable[..., Any]:
    """Returns a script as a function of (keys, args); it is sent to the server once."""
    made: Callable[..., Any] = connect(url).register_script(text)
    return made


@contextmanager
def reach(url: str) -> Iterator[None]:
    """Turns the errors of the server into StateError with one sentence."""
    try:
        yield
    except redis.AuthenticationError as error:
        raise StateError(
            f"The Redis server {shown(url)} does not accept the login ({error}): give the password in its address or "
            f"as {PASSWORD} in the environment of every host."
        ) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StateError(f"The Redis server {shown(url)} does not answer: see whether it runs ({error}).") from error
    except redis.RedisError as error:
        raise StateError(f"The Redis server {shown(url)} refuses a request: {error}.") from error


def check_server(url: str) -> None:
    """Raises UsageError when the server does not answer, or may evict keys."""
    try:
        with reach(url):
            policy = connect(url).info("memory").get("maxmemory_policy", "noeviction")
    except StateError as error:
        raise UsageError(str(error)) from error
    if policy != "noeviction":
        raise UsageError(
            f"The Redis server {shown(url)} may throw state away when its memory is full (maxmemory-policy {policy}): "
            "set it to noeviction."
        )


def forget(url: str, query: str) -> None:
    """Deletes all that a query has stored."""
    with reach(url):
        server, batch = connect(url), []
        for key in server.scan_iter(match=prefix(query) + "*", count=_SCAN):
            batch.append(key)
            if len(batch) == _SCAN:
                server.unlink(*batch)
                batch.clear()
        if batch:
            server.unlink(*batch)


LAST_COMMIT = b"commit"
"""Field of a worker's hash with the number of its last commit, which `COMMIT` sets."""
GUARD = b"\x00"  # the field of a hash that a commit checks: a worker's meta record, a bin's token

_LUA = f"""
local DENSE, BLOCK = {DENSE[0]}, {BLOCK_BYTES}
local function blocks_of(key) return key .. ':blocks' end
local function place(name)  -- of a block, or of a word in it
  local at = struct.unpack('>I4', name, 4) * BLOCK
  return #name > 7 and at + struct.unpack('>I2', name, 8) or at
end
local function put(key, packed)
  local items, at = {{}}, 1
  while at <= #packed do
    local name, value
    name, value, at = struct.unpack('<I2c0I4c0', packed, at)
    if name:byte() == DENSE then
      redis.call('SETRANGE', blocks_of(key), place(name), value)
    else
      items[#items + 1], items[#items + 2] = name, value
    end
    if #items >= 4000 or (at > #packed and #items > 0) then
      redis.call('HSET', key, unpack(items))
      items = {{}}
    end
  end
end
local function get(key, names, from)
  if names[from]:byte() ~= DENSE then
    local to = from
    while to < #names and to < from + 3999 and names[to + 1]:byte() ~= DENSE do to = to + 1 end
    return redis.call('HMGET', key, unpack(names, from, to)), to + 1
  end
  local at = place(names[from])
  local block = redis.call('GETRANGE', blocks_of(key), at, at + BLOCK - 1)
  return {{ block ~= '' and block }}, from + 1
end
local function names_of(packed)
  local names, at = {{}}, 1
  while at <= #packed do names[#names + 1], at = struct.unpack('<I2c0', packed, at) end
  return names
end
"""

READ = (
    _LUA
    + """
local answer, lengths, values, size = {}, {}, {}, 0
local function flush()
  answer[#answer + 1] = table.concat(values)
  values, size = {}, 0
end
for i, key in ipairs(KEYS) do
  local names, from, found = names_of(ARGV[i]), 1
  while from <= #names do
    found, from = get(key, names, from)
    for _, value in ipairs(found) do
      lengths[#lengths + 1] = struct.pack('<i4', value and #value or -1)
      values[#values + 1] = value or ''
      size = size + #values[#values]
      if size > 65536 then flush() end
    end
  end
end
flush()
table.insert(answer, 1, table.concat(lengths))
return answer
"""
)
"""KEYS: hashes; ARGV: the packed names wanted of each.

Returns int32 lengths, -1 for no such entry, then the values in pieces: in one piece would take Lua six times as long.
"""

STAGE = (
    _LUA
    + """
put(KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', blocks_of(KEYS[1]), ARGV[2])
"""
)
"""KEYS: a hash; ARGV: packed items to put into it, and after how many seconds it goes if no commit takes it over."""

COMMIT = (
    _LUA
    + """
local function adopt(staged, key)
  if redis.call('EXISTS', staged) == 1 then
    redis.call('RENAME', staged, key)
    redis.call('PERSIST', key)
  end
end
local function is_there(staged) return redis.call('EXISTS', staged, blocks_of(staged)) > 0 end
if redis.call('HGET', KEYS[1], 'commit') == ARGV[1] then return -1 end
for i, key in ipairs(KEYS) do
  local guard, a = redis.call('HGET', key, '\\0') or '', 5 * i - 3
  if guard ~= ARGV[a] or (ARGV[a + 4] ~= '' and not is_there(ARGV[a + 4])) then return i end
end
for i, key in ipairs(KEYS) do
  local a = 5 * i - 3
  if ARGV[a + 4] ~= '' then
    adopt(ARGV[a + 4], key)
    adopt(blocks_of(ARGV[a + 4]), blocks_of(key))
  end
  local gone = names_of(ARGV[a + 3])
  for from = 1, #gone, 4000 do redis.call('HDEL', key, unpack(gone, from, math.min(from + 3999, #gone))) end
  put(key, ARGV[a + 2])
  if ARGV[a + 1] ~= '' then redis.call('HSET', key, '\\0', ARGV[a + 1]) end
end
redis.call('HSET', KEYS[1], 'commit', ARGV[1])
return 0
"""
)
"""Applies a commit to all hashes or to none.

KEYS: the worker's hash first, then others. ARGV: a name for the commit, then five for each hash: its guard as it must
be ('' for none), its new guard ('' to leave it), packed items to put, packed names to delete, and a staged hash that
becomes this one ('' for none). Returns 0; -1 when this very commit is there already, that is an answer was lost; or the
number of the first hash whose guard is another, and then nothing was changed.
"""


def pack_names(names: Iterable[bytes]) -> bytes:
    """Returns names of at most 65,535 bytes in packed form."""
    return b"".join([len(name).to_bytes(2, "little") + name for name in names])


def pack_items(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns (name, value) pairs in packed form."""
    return b"".join([len(n).to_bytes(2, "little") + n + len(value).to_bytes(4, "little") + value for n, value in items])


def unpack_values(answer: Sequence[bytes]) -> list[bytes | None]:
    """Reads the answer of `READ`: a value for each name, in the order asked."""
    lengths, raw = np.frombuffer(answer[0], "<i4"), b"".join(answer[1:])
    ends = np.cumsum(np.maximum(lengths, 0)).tolist()
    return [None if n < 0 else raw[end - n : end] for n, end in zip(lengths.tolist(), ends, strict=True)]


_WORDS = BLOCK_BYTES // 8


def is_block(name: bytes) -> bool:
    """Returns whether an entry is a dense block."""
    return name[:1] == DENSE


def words_changed(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Returns the words in which blocks differ; the name of a word is its block's and two bytes for its place.

    A block without an earlier value is returned whole, under its own name.
    """
    names = [name for name in after if name in before]
    whole = {name: block for name, block in after.items() if name not in before}
    old, new = (
        np.frombuffer(b"".join([blocks[name] for name in names]), "<u8").reshape(-1, _WORDS)
        for blocks in (before, after)
    )
    rows, places = np.nonzero(old != new)
    words = new[rows, places].view("V8").tolist()
    offsets = (places * 8).astype(">u2").view("V2").tolist()
    return whole | {names[row] + at: word for row, at, word in zip(rows.tolist(), offsets, words, strict=True)}
