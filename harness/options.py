"""What commands share: lists in their options, and the exit code of one that was cut off."""

from collections.abc import Iterable

from impls.errors import UsageError

__all__ = ["CUT_OFF", "parse_list", "parse_names"]

CUT_OFF = 130  # as a shell has it for a program that SIGINT ended


def parse_list(text: str) -> tuple[str, ...]:
    """Reads words separated by commas, without the empty ones."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_names(text: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """Reads names separated by commas; raises UsageError for one that is not known."""
    known = tuple(known)
    names = parse_list(text)
    for name in names:
        if name not in known:
            raise UsageError(f"The {what} {name!r} is unknown: use one of {', '.join(known)}.")
    return names
