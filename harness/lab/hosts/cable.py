"""The cable of an isolated host: `cable.py NAME PID NETEM` carries packets between a network and that of a process.

It makes an interface NAME here and one called eth0 there, says `ready`, and delays, loses or slows what comes from
there as NETEM says; what goes there passes at once. A line of its standard input is a new NETEM; it ends with its input
or with either interface. Linux has a queue discipline for this, netem, which many kernels are built without.
"""

import ctypes
import errno
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from collections.abc import Sequence

_SET_INTERFACE, _SET_OFFLOAD = 0x400454CA, 0x400454D0  # TUNSETIFF, TUNSETOFFLOAD
_TAP, _PLAIN, _WITH_HEADER = 0x0002, 0x1000, 0x4000  # IFF_TAP, IFF_NO_PI, IFF_VNET_HDR
_OFFLOADS = 0x01 | 0x02 | 0x04  # checksums, and segments of IPv4 and IPv6: a packet is then up to 64 kB
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_PACKET_BYTES = 1 << 17
_AT_ONCE = 64
_WAITING_MOST = 1000  # packets, as netem's own limit
_DOWN = {errno.EIO, errno.EAGAIN, errno.ENOBUFS}  # the other end is down or full: the packet is lost, as on a cable


def main(arguments: Sequence[str]) -> int:
    """Carries packets until its input or an interface ends, and returns 0."""
    name, pid, netem = arguments
    here = _interface(name)
    with open(f"/proc/{pid}/ns/net") as network:  # noqa: PTH123 - this program imports what it needs alone
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "the host's network cannot be entered")
    there = _interface("eth0")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    delays = _Delays(json.loads(netem), seed=int(pid))
    try:
        while _carry(here, there, delays):
            pass
    except OSError as error:
        if error.errno not in {errno.EBADFD, errno.EBADF}:
            raise
    return 0


class _Delays:
    """What waits on the cable, and what decides about a packet: delay, jitter (s), loss (share), rate (bytes/s)."""

    def __init__(self, netem: dict[str, float], seed: int):
        self.netem = netem
        self._draw = random.Random(seed)
        self._waiting: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._sent_s = 0.0

    def put(self, packet: bytes, now_s: float) -> None:
        """Takes a packet, or loses it."""
        if len(self._waiting) >= _WAITING_MOST or self._draw.random() < self.netem["loss"]:
            return
        delay_s = self.netem["delay_s"] + self._draw.uniform(-1, 1) * self.netem["jitter_s"]
        if self.netem["rate"]:
            self._sent_s = max(self._sent_s, now_s) + len(packet) / self.netem["rate"]
            delay_s += self._sent_s - now_s
        self._count += 1
        heapq.heappush(self._waiting, (now_s + delay_s, self._count, packet))

    def wait_s(self, now_s: float) -> float | None:
        """Returns the time until the next packet is due, None when none waits."""
        return max(0.0, self._waiting[0][0] - now_s) if self._waiting else None

    def due(self, now_s: float) -> list[bytes]:
        """Returns the packets that have waited long enough."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_s:
            found.append(heapq.heappop(self._waiting)[2])
        return found


def _carry(here: int, there: int, delays: _Delays) -> bool:
    """Carries what has come, and what is due; returns False at the end of input."""
    control = sys.stdin.fileno()
    ready = select.select([here, there, control], [], [], delays.wait_s(time.monotonic()))[0]
    if here in ready:
        for packet in _packets(here):
            _send(there, packet)
    if there in ready:
        for packet in _packets(there):
            delays.put(packet, time.monotonic())
    for packet in delays.due(time.monotonic()):
        _send(here, packet)
    if control in ready:
        line = sys.stdin.readline()
        if line:
            delays.netem = json.loads(line)
        return bool(line)
    return True


def _packets(interface: int) -> list[bytes]:
    packets: list[bytes] = []
    try:
        while len(packets) < _AT_ONCE:
            packets.append(os.read(interface, _PACKET_BYTES))
    except OSError as error:
        if error.errno not in _DOWN:
            raise
    return packets


def _send(interface: int, packet: bytes) -> None:
    try:
        os.write(interface, packet)
    except OSError as error:
        if error.errno not in _DOWN | {errno.EINVAL}:
            raise


def _interface(name: str) -> int:
    """Makes an interface in this process's network, which is there as long as its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TAP | _PLAIN | _WITH_HEADER))
    fcntl.ioctl(descriptor, _SET_OFFLOAD, _OFFLOADS)
    return descriptor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
