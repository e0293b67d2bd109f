"""What a simulated run ends with when something does not hold that must."""


class Violation(Exception):  # noqa: N818
    """Something that must hold does not; `check` names it."""

    def __init__(self, check: str, what: str):
        super().__init__(what)
        self.check = check


def require(holds: bool, check: str, what: str) -> None:
    """Raises Violation unless something holds."""
    if not holds:
        raise Violation(check, what)
