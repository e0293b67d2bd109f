"""What a `with` statement closes at its end."""

from typing import Self


class Closing:
    """Has a method `close`, which the end of a `with` statement calls, whether or not the statement failed."""

    __slots__ = ()

    def close(self) -> None:
        """Gives back what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
