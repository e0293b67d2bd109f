"""The help of a task: its options in groups, each with what it is, its unit and its default."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from harness.options.declared import COUNT, FLAG, POWER, WORKERS, Option

__all__ = ["defaults_of", "help_text", "shown"]

_NARROW, _WIDE = 80, 120  # columns of text
_INDENT = 2
_SCALES = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def help_text(
    task: str, about: str, options: Sequence[Option], columns: int, presets: Mapping[str, Mapping[str, Any]]
) -> str:
    """Returns the help of a task.

    Args:
        task: as a user writes it.
        about: what it does, and what else its user must know.
        options: in the order of help; the groups come in the order of their first options.
        columns: of the terminal; text is between 80 and 120 wide.
        presets: defaults that replace others, by their name, each by fields.
    """
    width = min(max(columns, _NARROW), _WIDE)
    needed = " ".join(option.name.upper() for option in options if option.required)
    usage = f"Usage: ./inv {task} {needed}{' ' if needed else ''}[options]; defaults stand in brackets."
    lines = [*textwrap.wrap(usage, width), ""]
    for paragraph in about.split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    specs = {option.name: _spec(option) for option in options}
    left = max((len(spec) for spec in specs.values()), default=0) + 2 * _INDENT
    for group in dict.fromkeys(option.group or "Options" for option in options):
        lines.append(group)
        for option in options:
            if (option.group or "Options") == group:
                lines += textwrap.wrap(
                    f"{option.help}{defaults_of(option, presets)}", width,
                    initial_indent=(" " * _INDENT + specs[option.name]).ljust(left), subsequent_indent=" " * left,
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
        lines.append("")
    return "\n".join(lines)


def _spec(option: Option) -> str:
    return f"{option.flag} {option.metavar}".rstrip()


def defaults_of(option: Option, presets: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the default and what presets make of it, in brackets; a flag has none."""
    if option.kind == FLAG:
        return ""
    if option.required:
        return " [needed]"
    words = [option.shown or shown(option, option.default)]
    words += [
        f"{name}: {shown(option, preset[option.field])}" for name, preset in presets.items() if option.field in preset
    ]
    return f" [{'; '.join(words)}]"


def shown(option: Option, value: Any) -> str:
    """Returns a value as a user writes it, with its unit."""
    if isinstance(value, tuple):
        return ", ".join(value)
    if option.kind in {COUNT, POWER, WORKERS} and isinstance(value, int):
        large = ((scale, letter) for scale, letter in _SCALES if value >= scale and value * 10 % scale == 0)
        text = next((f"{value / scale:g}{letter}" for scale, letter in large), str(value))
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text} {option.unit}".rstrip() or "none"
