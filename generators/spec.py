"""Choices with options as one text, NAME or NAME:OPTION=VALUE,OPTION=VALUE; and the error of all generators."""

import math
from collections.abc import Mapping


class GeneratorError(ValueError):
    """A stream cannot be generated as described, or not into the topic given: one sentence says why and what to do."""


def split_choice(text: str) -> tuple[str, str]:
    """Returns (name, what stands behind the first colon)."""
    name, _, rest = text.partition(":")
    return name.strip(), rest.strip()


def pairs_of(text: str, what: str) -> list[tuple[str, float]]:
    """Reads "A=1,B=2.5" into pairs, in their order; raises GeneratorError that says `what` they belong to."""
    out = []
    for part in text.split(",") if text else []:
        name, equals, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (equals and name.strip() and math.isfinite(number)):
            raise GeneratorError(f"An option of {what} is given as NAME=NUMBER, not {part.strip()!r}.")
        out.append((name.strip(), number))
    return out


def options_of(text: str, defaults: Mapping[str, float], what: str) -> dict[str, float]:
    """Returns the defaults with the options of the text put in; raises GeneratorError for one that is unknown."""
    texts = dict(pairs_of(text, what))
    unknown = next((name for name in texts if name not in defaults), None)
    if unknown is not None:
        takes = f"it takes {', '.join(defaults)}" if defaults else "it takes none"
        raise GeneratorError(f"The option {unknown!r} of {what} is unknown: {takes}.")
    return {**defaults, **texts}
