"""What `./inv release` reads of its options and says at its end."""

import subprocess
import sys

import pytest
from pyspark import cloudpickle

from harness.run import release
from harness.run.release import in_words, query_in, run_release
from impls.errors import UsageError
from impls.releasing.releasing import Released


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """A search path of the test's own: the command leaves the file's folder in it."""
    monkeypatch.setattr(sys, "path", list(sys.path))


QUERY = """
from beside_it import doubled

def build(number):
    from later_beside_it import add
    return lambda: add(doubled(number))
"""


def test_a_function_of_a_file_goes_to_processes_that_do_not_have_its_folder(tmp_path):
    (tmp_path / "beside_it.py").write_text("def doubled(n):\n    return 2 * n\n")
    (tmp_path / "later_beside_it.py").write_text("def add(n):\n    return n + 1\n")
    (tmp_path / "my_query.py").write_text(QUERY)
    made = query_in(f"{tmp_path}/my_query.py:build")(3)
    assert made() == 7
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)())"
    raw = cloudpickle.dumps(made)
    done = subprocess.run([sys.executable, "-c", program], input=raw, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"7\n", done.stderr.decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing.py:build", "There is no file 'nothing.py'"),
        ("build", "There is no file 'build'"),
        ("{folder}/query_file.py:other", "has no function 'other'"),
        ("{folder}/query_file.py:NUMBER", "has no function 'NUMBER'"),
        ("{folder}/broken_file.py:build", "cannot be run: ZeroDivisionError: division by zero"),
        ("{folder}/ending_file.py:build", "cannot be run: SystemExit: 0"),
    ],
)
def test_what_is_no_function_of_a_file_is_refused(tmp_path, text, why):
    (tmp_path / "query_file.py").write_text("NUMBER = 7\n")
    (tmp_path / "broken_file.py").write_text("1 / 0\n")
    (tmp_path / "ending_file.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UsageError, match=why):
        query_in(text.format(folder=tmp_path))


def test_a_file_that_is_called_as_a_module_takes_no_ones_place(tmp_path):
    (tmp_path / "json.py").write_text("def build(spark):\n    return spark\n")
    before = sys.modules["json"], list(sys.path)
    assert query_in(f"{tmp_path}/json.py:build")("session") == "session"
    assert (sys.modules["json"], sys.path) == (before[0], [*before[1], str(tmp_path)])


def test_a_function_that_fails_without_a_word_is_named():
    def build(_spark):
        raise AssertionError

    with pytest.raises(UsageError, match=r"a\.py:build has failed: AssertionError: it does not say why"):
        release._frame(build, None, "a.py:build")


def test_a_file_that_is_missing_ends_the_command_before_a_session_begins(capsys):
    assert run_release({"checkpoint": "a", "into": "b", "query": "nothing.py:build"}) == 2
    assert "name FILE.py:FUNCTION" in capsys.readouterr().err


def test_what_was_released_is_said_with_where_the_query_goes_on():
    assert in_words(Released(7, 7, 3, 4.0)) == (
        "The state behind epoch 7 was released into 3 partitions in 4.0 s. The Spark query goes on with batch 8."
    )
