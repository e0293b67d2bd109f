"""The archive for executors runs a step wherever it is unpacked, with nothing of this machine's Python."""

import subprocess
import sys
import sysconfig
import tarfile

import pytest

from harness.setup import pack as packing
from harness.setup.pack import pack, print_packed
from impls.errors import UsageError

pytestmark = [pytest.mark.lengthy, pytest.mark.skipif(sys.platform != "linux", reason="packs on Linux only")]
_COMPILED = f"{sys.implementation.cache_tag}.pyc"
_IMPORTS = """
import bz2, ctypes, lzma, sqlite3, ssl, sys, uuid, zlib
from impls.spark.daemon import preload
assert preload(), "cannot be forked"
import google.protobuf, pyarrow.flight, pyarrow.fs, harness.files, generators, plots
import impls.mechanisms.external.client, impls.mechanisms.native_spark.processor
print(sys.executable)
loaded = {str(module.__file__) for module in sys.modules.values() if getattr(module, "__file__", None)}
loaded |= {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(*sorted(loaded), sep="\\n")
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def packed(cache, monkeypatch):
    monkeypatch.setenv("RESCALE_CACHE", str(cache))
    return pack()


def test_it_runs_a_step_with_its_own_python_alone(packed, tmp_path):
    place = tmp_path / "any where"
    place.mkdir()
    subprocess.run(["tar", "-xzf", packed, "-C", place], check=True)
    done = subprocess.run(
        [place / "bin" / "python", "-c", _IMPORTS], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    program, *loaded = done.stdout.splitlines()
    assert program.startswith(str(place))
    assert any(path.endswith("impls/spark/step.py") for path in loaded)
    foreign = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(packing.ROOT))
    assert not [path for path in loaded if path.startswith(foreign)]


def test_it_is_packed_once_for_versions_and_code(packed, cache, capsys, monkeypatch):
    first = {path.name: path.stat().st_ino for path in cache.iterdir()}
    assert print_packed("") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(packed)
    assert {path.name: path.stat().st_ino for path in cache.iterdir()} == first

    monkeypatch.setattr(packing, "_CODE", ("impls",))  # as if the rest of the code were gone
    other = pack()
    assert other != packed
    assert {path.name: path.stat().st_ino for path in cache.iterdir()}.items() - first.items() == {
        (other.name, other.stat().st_ino)
    }, "Python and libraries are taken from the first"
    with tarfile.open(other) as tar:
        assert not [name for name in tar.getnames() if "/harness/" in name]


def test_compiled_files_fit_their_sources_so_no_host_compiles_them_again(packed):
    with tarfile.open(packed) as tar:
        sources = {entry.name: entry for entry in tar if entry.name.endswith((".py", ".pyc"))}
        [name] = [name for name in sources if name.endswith(f"pandas/core/__pycache__/frame.{_COMPILED}")]
        header = tar.extractfile(name).read(16)
        assert int.from_bytes(header[8:12], "little") == sources[name.split("__pycache__")[0] + "frame.py"].mtime
    assert not [n for n in sources if "/pyspark/jars/" in n or "/pandas/tests/" in n]


def test_what_is_not_installed_cannot_be_packed(cache, monkeypatch):
    monkeypatch.setenv("RESCALE_CACHE", str(cache))
    with pytest.raises(UsageError, match="no-such-library is not installed in"):
        pack(["no-such-library"])
    assert not list(cache.glob("partial-*"))
