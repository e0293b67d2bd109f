"""An option as data, said once: a task's parser and help, the checks of values and the schema come from it."""

import dataclasses
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.options import parse_bytes, parse_list, parse_number, parse_workers
from impls.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """How the text of an option is read.

    Attributes:
        metavar: what stands for a value in help; empty for a flag.
        json: type of the value in JSON.
        read: returns the value of a text given for an option; raises UsageError for a bad one. What has been read
            already is returned as it is.
        rule: what a value must be besides in its bounds, as a sentence says it.
    """

    metavar: str
    json: str
    read: Callable[[Any, "Option"], Any]
    rule: str = ""


def _number(kind: Callable[[Any], float]) -> Callable[[Any, "Option"], float]:
    def read(given: Any, option: "Option") -> float:
        try:
            return kind(given)
        except ValueError:
            raise UsageError(f"{option.flag} takes a number, not {given!r}: {option.help}.") from None

    return read


def _names(given: Any, _: "Option") -> tuple[str, ...]:
    return parse_list(given) if isinstance(given, str) else tuple(given)


def _workers(given: Any, _: "Option") -> tuple[int, int]:
    return given if isinstance(given, tuple) else parse_workers(given)


FLAG = Kind("", "boolean", lambda given, _: bool(given))
TEXT = Kind("TEXT", "string", lambda given, _: str(given))
FOLDER = dataclasses.replace(TEXT, metavar="FOLDER")
COUNT = Kind("N", "integer", lambda given, option: parse_number(given, option.subject))
BYTES = Kind("BYTES", "integer", lambda given, option: parse_bytes(given, option.subject))
POWER = dataclasses.replace(COUNT, rule="a power of two ")
INTEGER = Kind("N", "integer", _number(int))
REAL = Kind("X", "number", _number(float))
NAMES = Kind("NAMES", "array", _names)
PAIRS = Kind("PAIRS", "object", lambda given, _: given)
WORKERS = Kind("N", "integer", _workers)


@dataclass(frozen=True)
class Option:
    """An option of a task.

    Attributes:
        name: as in Python; a user writes it with two dashes before it and dashes in it.
        help: what it is, in a few words.
        kind: how its text is read.
        group: heading under which help shows it.
        default: its value where none is given.
        unit: of its value.
        shown: its default in words, where the value does not say it.
        subject: what a sentence that refuses a value begins with.
        least, most: bounds of its value, both included.
        choices: the values there are, if they are few.
        required: whether it must be given; it may then be given without its name.
        field: the field of a dataclass that it sets, if it sets one.
        own: whether it is an option on its own; if not, another option sets its field too.
    """

    name: str
    help: str
    kind: Kind = TEXT
    group: str = ""
    default: Any = None
    unit: str = ""
    shown: str = ""
    subject: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    field: str = ""
    own: bool = True

    @property
    def flag(self) -> str:
        """The option as a user writes it."""
        return "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        """The placeholder of a value in help: the choices, the unit if it is a short word, or the kind's."""
        if self.choices:
            return "|".join(self.choices)
        return self.unit.upper() if self.unit in {"bytes", "seconds"} else self.kind.metavar

    def read(self, given: Any) -> Any:
        """Returns the value of a text (or of a value), within its bounds; raises UsageError with one sentence."""
        value = self.kind.read(given, self)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raises UsageError for a value that is none of the choices, or out of bounds; None is no value.

        Of several values each is checked.
        """
        if value is None:
            return
        if isinstance(value, tuple):
            for one in value:
                self.check(one)
            return
        if self.choices and value not in self.choices:
            if len(self.choices) == 2:
                raise UsageError(f"{self.subject} is {' or '.join(self.choices)}, not {value!r}.")
            raise UsageError(f"{self.subject} {value!r} is unknown: use one of {', '.join(self.choices)}.")
        if self.least is None:
            return
        fits = self.least <= value <= (self.most if self.most is not None else 1e308)  # false for NaN too
        if not fits or (self.kind == POWER and value & (value - 1)):
            raise UsageError(f"{self.subject} must be {self.kind.rule}{self.bounds}, not {value:g}.")

    @property
    def bounds(self) -> str:
        """The bounds in words, with the unit."""
        words = f"at least {self.least:g}" if self.most is None else f"from {self.least:.0f} to {self.most:.0f}"
        return f"{words} {self.unit}".rstrip()

    def schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a value."""
        types = [self.kind.json, *(["null"] if self.default is None else [])]
        entry: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
        if self.kind == NAMES:
            entry["items"] = {"type": "string", **({"enum": list(self.choices)} if self.choices else {})}
        elif self.choices:
            entry["enum"] = list(self.choices)
        entry |= {key: bound for key, bound in (("minimum", self.least), ("maximum", self.most)) if bound is not None}
        return {**entry, "description": self.help + (f" ({self.unit})" if self.unit else "")}


def declare(default: Any, text: str, group: str, kind: Kind = TEXT, **more: Any) -> Any:
    """Returns a dataclass's field that is an option, see `Option`; `name` is the field's unless given."""
    option = Option(more.pop("name", ""), text, kind, group, **more)
    metadata = {"option": option}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(kind: type) -> tuple[Option, ...]:
    """Returns what the fields of a dataclass declare, in their order, with their defaults."""
    options = []
    for one in dataclasses.fields(kind):
        option: Option = one.metadata["option"]
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        options.append(dataclasses.replace(option, name=option.name or one.name, field=one.name, default=default))
    return tuple(options)


def read_given(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of what is given by the fields that they set; raises UsageError for a bad or unknown one.

    Names may be those of the options or of the fields; None is not given.
    """
    options = tuple(options)
    known = {name: option for option in options for name in (option.field, option.name) if name}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if text is None:
            continue
        if name not in known:
            raise UsageError(f"There is no option {name!r}: use one of {', '.join(o.name for o in options)}.")
        option = known[name]
        values[option.field or option.name] = option.read(text)
    return values


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
