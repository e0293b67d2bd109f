"""What this machine has of what a query and the benchmark need, and how to get what is missing.

It needs nothing but what `impls` needs, so that it can say what else is not there.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from harness.setup.java import cache_folder, ensure_jars, find_java, find_javac, jars_folder, java_version
from impls.errors import UsageError
from impls.sockets import FILES_MIN, raise_file_limit

_DISK_GB_MIN = 5.0
_MEMORY_GB_MIN = 6.0
_SHM_MB_MIN = 64
_CORES_MIN = 2
_PYSPARK = "4.3."
_PORTS = 3  # broker, its controller, Spark's driver
_READ_DEADLINE_S = 30.0
_REMOTE = {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gpfs", "lustre", "nfs",
           "nfs4", "smb3", "smbfs", "virtiofs"}  # fmt: skip
_BENCH = ("duckdb", "hdrh", "invoke", "jinja2", "kafka", "matplotlib", "psutil", "rich", "seaborn")
_READ = "import lmdb, sys; print(lmdb.open(sys.argv[1]).begin().get(b'key').decode())"
_WIDE = 76


@dataclass(frozen=True)
class Requirement:
    """One item: what was found, whether that is enough, whether it must be, and how to get it."""

    item: str
    found: str
    ok: bool
    remedy: str = ""
    needed: bool = True

    @property
    def verdict(self) -> str:
        """In one word: ok, missing or optional."""
        return "ok" if self.ok else "missing" if self.needed else "optional"


def examine(state_dir: Path | None = None, *, fetch: bool = False) -> list[Requirement]:
    """Looks at everything and returns the findings; needs about a second, and a network only where it fetches.

    Args:
        state_dir: folder in which workers are to keep their state; by default the folder for temporary files.
        fetch: whether jars that are not there are fetched.
    """
    folder = state_dir or Path(tempfile.gettempdir())
    checks: tuple[Callable[[], Requirement], ...] = (
        _python, _java, _javac, _pyspark, partial(_jars, fetch=fetch), _bench, _cores, _memory, _files, _disk,
        _shared_memory, _ports, partial(_local, folder), partial(_lmdb, folder), _docker,
    )  # fmt: skip
    return [check() for check in checks]


def report(state_dir: Path | None = None, *, as_json: bool = False, fetch: bool = False) -> int:
    """Prints what `examine` finds and returns the exit code: 1 if something is missing that is needed."""
    findings = examine(state_dir, fetch=fetch)
    told = [{**asdict(finding), "verdict": finding.verdict} for finding in findings]
    sys.stdout.write(json.dumps(told, indent=1) + "\n" if as_json else "\n".join(lines(findings)) + "\n")
    return int(any(finding.verdict == "missing" for finding in findings))


def lines(findings: Sequence[Requirement]) -> list[str]:
    """Returns the findings for the terminal, a line each, and below it how to get what is missing."""
    left = max(len(finding.item) for finding in findings) + 2
    out = []
    for finding in findings:
        out.append(f"{finding.verdict:<10}{finding.item:<{left}}{finding.found}")
        if not finding.ok:
            out += textwrap.wrap(finding.remedy, _WIDE, initial_indent=" " * 10 + "-> ", subsequent_indent=" " * 13)
    return out


def _python() -> Requirement:
    return Requirement("Python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")


def _pyspark() -> Requirement:
    remedy = f"pip install 'pyspark=={_PYSPARK}0': no other version was tried"
    try:
        found = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Requirement("pyspark", "none", ok=False, remedy=remedy)
    return Requirement("pyspark", found, found.startswith(_PYSPARK), remedy)


def _java() -> Requirement:
    try:
        java = find_java()
    except UsageError as error:
        return Requirement("Java", "none that is new enough", ok=False, remedy=str(error))
    return Requirement("Java", f"{java_version(java)} ({java})", ok=True)


def _javac() -> Requirement:
    remedy = "install a JDK, to compare with Flink and Kafka Streams: for example openjdk-17-jdk-headless"
    try:
        return Requirement("Java compiler", str(find_javac()), ok=True, needed=False)
    except UsageError:
        return Requirement("Java compiler", "none", ok=False, remedy=remedy, needed=False)


def _jars(*, fetch: bool) -> Requirement:
    if fetch:
        try:
            ensure_jars()
        except UsageError as error:
            return Requirement("Kafka connector", "cannot be fetched", ok=False, remedy=str(error))
    folder = jars_folder()
    if folder.exists():
        return Requirement("Kafka connector", str(folder), ok=True)
    remedy = "the first run fetches it (54 MB with a broker); with --fetch this command does so now"
    return Requirement("Kafka connector", "not yet", ok=False, remedy=remedy, needed=False)


def _bench() -> Requirement:
    lacking = [name for name in _BENCH if importlib.util.find_spec(name) is None]
    found = f"no {', '.join(lacking)}" if lacking else "all there"
    remedy = "pip install 'rescale-bench[bench]', for the benchmark, the examples and the commands for running queries"
    return Requirement("extra bench", found, not lacking, remedy, needed=False)


def _disk() -> Requirement:
    place = next(path for path in [cache_folder(), *cache_folder().parents] if path.exists())
    free = min(shutil.disk_usage(path).free for path in (Path.cwd(), place)) / 1e9
    return Requirement("free disk", f"{free:.0f} GB", free >= _DISK_GB_MIN, f"free {_DISK_GB_MIN:.0f} GB")


def _cores() -> Requirement:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Requirement("cores", str(cores), cores >= _CORES_MIN, "latencies need two cores or more", needed=False)


def _files() -> Requirement:
    most = raise_file_limit()
    shown = "any number" if most == sys.maxsize else f"{most:,}"
    return Requirement("open files", shown, most >= FILES_MIN, "raise the limit: ulimit -n 4096")


def _memory() -> Requirement:
    free = _available_bytes() / 1e9
    return Requirement(
        "free memory", f"{free:.1f} GB", free >= _MEMORY_GB_MIN, f"free {_MEMORY_GB_MIN:.0f} GB", needed=False
    )


def _available_bytes() -> int:
    """Returns the memory that programs can still get; where the system does not tell, all that there is."""
    try:
        told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(told["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _shared_memory() -> Requirement:
    try:
        free = shutil.disk_usage("/dev/shm").free / 1e6
    except OSError:
        return Requirement("/dev/shm", "none", ok=False, remedy="state goes to the disk instead", needed=False)
    remedy = "in a container: --shm-size=1g; else state goes to the disk"
    return Requirement("/dev/shm", f"{free / 1e3:.1f} GB free", free >= _SHM_MB_MIN, remedy, needed=False)


def _ports() -> Requirement:
    servers = []
    try:
        servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(_PORTS)]
        found = ", ".join(str(server.getsockname()[1]) for server in servers)
        return Requirement("free ports", found, ok=True)
    except OSError as error:
        return Requirement("free ports", str(error.strerror), ok=False, remedy="allow listening on 127.0.0.1")
    finally:
        for server in servers:
            server.close()


def _local(folder: Path) -> Requirement:
    kind = file_system(folder)
    remedy = "state is mapped into memory: name a folder on a disk of this machine with --state-dir"
    return Requirement("state folder", f"{folder} ({kind})", kind not in _REMOTE, remedy)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Returns the type of the file system that a folder is on, or will be; "unknown" where the system does not tell."""
    try:
        told = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return "unknown"
    place, longest = folder.absolute().resolve(), (0, "unknown")
    for words in told:
        mounted = Path(words[4].replace("\\040", " "))
        if place.is_relative_to(mounted):
            longest = max(longest, (len(mounted.parts), words[words.index("-") + 1]), key=lambda one: one[0])
    return longest[1]


def _lmdb(folder: Path) -> Requirement:
    """Writes in the folder and reads in another process, as pulls do."""
    remedy = "name a folder that can be written, on a disk of this machine, with --state-dir"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="doctor-", dir=folder) as place:
            read = _written_and_read(place)
    except (ImportError, OSError, subprocess.TimeoutExpired) as error:
        return Requirement("LMDB", str(error), ok=False, remedy=remedy)
    if read != "read":
        return Requirement("LMDB", f"fails in {folder}: {read}", ok=False, remedy=remedy)
    return Requirement("LMDB", "written by one process and read by another", ok=True)


def _written_and_read(place: str) -> str:
    """Returns "read" when another process has read what this one wrote, else what went wrong."""
    import lmdb  # noqa: PLC0415 - whether it can be imported is asked here

    try:
        with lmdb.open(place, map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
            transaction.put(b"key", b"read")
    except lmdb.Error as error:
        return str(error)
    command = [sys.executable, "-c", _READ, place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_READ_DEADLINE_S, check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def _docker() -> Requirement:
    found = shutil.which("docker")
    return Requirement("docker", found or "none", found is not None, "only for the docker tasks", needed=False)
