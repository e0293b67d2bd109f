"""Tables in a terminal, or in a log file, which is as wide as the widest of them."""

import sys
from collections.abc import Container, Iterable, Sequence

from rich.console import Console
from rich.table import Column, Table

_LOG_FILE = 190  # columns


def terminal() -> Console:
    """Returns standard output, without colours for numbers."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _LOG_FILE)


def terminal_table(columns: Sequence[str], rows: Iterable[Sequence[str]], names: Container[str]) -> Table:
    """Returns rows of texts as a table; columns that are not in `names` have numbers, and stand to the right."""
    heads = [Column(name, overflow="fold", justify="left" if name in names else "right") for name in columns]
    out = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        out.add_row(*row)
    return out
