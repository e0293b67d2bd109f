"""The programs of the peers: jars that are fetched and checked, and a class of this project's that is compiled."""

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from harness.setup.jars import cache_folder, fetched, only_one
from harness.setup.java import find_javac
from impls.errors import UsageError

__all__ = ["PEERS", "compiled", "jars_of"]

PEERS = ("flink", "kafka-streams")
_HERE = Path(__file__).resolve().parent
_DEADLINE_S = 300.0


def jars_of(engine: str) -> tuple[Path, ...]:
    """Returns the jars of an engine of `PEERS`, fetched first if they are not in the cache.

    Raises:
        UsageError: as `harness.setup.jars.ensure_jars`.
    """
    return fetched(_HERE / "jars.xml", _HERE / "jars.sha256", megabytes=256)[engine]


def compiled(source: Path, jars: Sequence[Path]) -> Path:
    """Returns a jar with the classes of a Java file, compiled unless that has been done with the same jars.

    Raises:
        UsageError: there is no compiler, or it refuses the file.
    """
    names = " ".join(jar.name for jar in jars)
    digest = hashlib.sha256(source.read_bytes() + names.encode()).hexdigest()
    target = cache_folder() / f"{source.stem}-{digest[:16]}.jar"
    if not target.exists():
        javac = find_javac()
        with only_one(target.parent):
            if not target.exists():
                _compile(javac, source, jars, target)
    return target


def _compile(javac: Path, source: Path, jars: Sequence[Path], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="classes-") as folder:
        command: list[str | Path] = [
            javac,
            "--release",
            "17",
            "-nowarn",
            "-d",
            folder,
            "-cp",
            os.pathsep.join(map(str, jars)),
            source,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[:1]
            raise UsageError(f"{source.name} cannot be compiled with {javac}: {said[0] if said else 'it said nothing'}")
        unfinished = target.with_suffix(".part")
        with zipfile.ZipFile(unfinished, "w") as jar:
            for path in sorted(Path(folder).rglob("*.class")):
                jar.write(path, path.relative_to(folder).as_posix())
        unfinished.replace(target)
