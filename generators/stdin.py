"""Standard input watched: a child process notices there that the one who started it speaks, or is gone."""

import os
import threading
from collections.abc import Callable

__all__ = ["watch_stdin"]


def watch_stdin(on_end: Callable[[], object], on_words: Callable[[bytes], object] | None = None) -> None:
    """Starts a thread that calls `on_end` once standard input ends, and `on_words` with whatever comes."""

    def watch() -> None:
        while said := os.read(0, 4096):  # unbuffered: a thread inside sys.stdin would crash the interpreter's shutdown
            if on_words is not None:
                on_words(said)
        on_end()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
