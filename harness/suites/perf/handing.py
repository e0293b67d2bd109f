"""`python -m harness.suites.perf.handing FOLDER HOST`: hands out the bins in a folder until its standard input ends.

It reads the settings of `Transfer` from the first line and prints the address.
"""

import sys
from collections.abc import Sequence

from harness.lab.waiting import wait_for
from impls.transfer.offer import offer
from impls.transfer.settings import Transfer

QUERY, GENERATION = "pulls", 1
_DEADLINE_S = 60.0


def main(arguments: Sequence[str]) -> int:
    """Serves as a host of a query would."""
    folder, host = arguments
    transfer = Transfer.from_json(sys.stdin.buffer.readline())
    found: list[str] = []

    def is_up() -> bool:
        found[:] = [offer(transfer, query=QUERY, generation=GENERATION, host=host, state_dir=folder)]
        return bool(found[0])

    wait_for(is_up, f"a server at {host}", _DEADLINE_S)
    sys.stdout.write(f"{found[0]}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
