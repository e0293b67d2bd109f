"""`./inv mechanisms`: every mechanism and baseline, what it does, and its options with their defaults."""

import inspect
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from harness.report.terminal import terminal
from impls import catalog


def purpose_of(kind: type) -> str:
    """Returns the first paragraph of a class's docstring as one line: what a mechanism does."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _table(title: str, lines: Iterable[tuple[str, type]]) -> Table:
    """Returns a table of names, first sentences and options; text is wrapped, never cut."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("name", "what it does", "options and their defaults"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, kind in lines:
        options = "\n".join(
            f"{option}={value if value != '' else '(none)'}" for option, value in catalog.options(name).items()
        )
        table.add_row(Text(name), Text(purpose_of(kind)), Text(options or "-"))
    return table


def mechanism_tables() -> tuple[Table, Table, Table]:
    """Returns the mechanisms of this project, the baselines, which keep the state as Spark does, and other engines."""
    live = [(name, type(catalog.make(name))) for name in catalog.names()]
    native, others = (
        [(name, type(catalog.baseline(name))) for name in names] for names in (catalog.natives(), catalog.engines())
    )
    return (
        _table("Mechanisms, on this project's state", live),
        _table("Baselines, on Spark's own state, which moves only while the query is stopped", native),
        _table("Baselines, on other engines, whose programs are fetched on first use", others),
    )


def list_mechanisms() -> int:
    """Prints the mechanisms and the baselines as wide as the terminal, and returns the exit code 0."""
    console = terminal()
    for number, table in enumerate(mechanism_tables()):
        console.print(*([""] if number else []), table, sep="\n")
    return 0
