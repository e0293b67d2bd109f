"""Tables: in a terminal, in a log file, and in Markdown."""

import sys
from collections.abc import Container, Iterable, Iterator, Sequence

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


_RULES = {"l": "---", "r": "---:"}


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> Iterator[str]:
    """Yields a table's lines; `align` has l (left) or r (right) for each column, its last letter for those behind."""
    rules = [_RULES[letter] for letter in align.ljust(len(columns), align[-1])]
    yield _line(columns)
    yield f"|{'|'.join(rules)}|"
    yield from (_line(row) for row in rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
