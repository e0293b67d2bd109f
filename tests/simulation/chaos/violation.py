"""What a simulated run ends with when something does not hold that must."""

from collections.abc import Iterable, Mapping
from pathlib import Path


class Violation(Exception):  # noqa: N818
    """Something that must hold does not; `check` names it."""

    def __init__(self, check: str, what: str):
        super().__init__(what)
        self.check = check

    def sentence(self, who: str, p: object, faults: Iterable[str], when: str, *, folder: Path) -> str:
        """Returns what is printed: who has violated what, when, with which parameters, behind which faults.

        Paths are told from the run's folder on.
        """
        what, so_far = str(self).replace(str(folder), "").rstrip("."), ", ".join(faults) or "none"
        return f"{who} ({p}; faults so far: {so_far}) violates {self.check!r} {when}: {what}."


def counted(fired: Mapping[str, int]) -> list[str]:
    """Returns numbers of faults by kind as words."""
    return [f"{number} {kind}" for kind, number in sorted(fired.items())]


def require(holds: bool, check: str, what: str) -> None:
    """Raises Violation unless something holds."""
    if not holds:
        raise Violation(check, what)
