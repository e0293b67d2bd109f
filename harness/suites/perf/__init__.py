"""The performance suite: each file here that has a PART is a part of `./inv perf`."""

from pathlib import Path


def part_names() -> list[str]:
    """Returns the names of the parts, which are those of their files, ascending."""
    files = [path for folder in __path__ for path in Path(folder).glob("*.py")]
    return sorted(path.stem for path in files if "\nPART = " in path.read_text("utf-8"))
