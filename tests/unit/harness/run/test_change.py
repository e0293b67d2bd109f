"""A change as a query takes it: the code is that of the file as it is now."""

import pickle

import pytest

from harness.run.change import offer
from impls.driver.codes import Offers
from impls.errors import UsageError

RULES = "from impls.operators.steps import Filter\nlimit = Filter('limit', lambda row: row['key'] < {})\n"


@pytest.fixture
def offered(tmp_path, capsys):
    """offered(file, **ways) offers `limit` of a file to two queries and returns what the second one loads."""
    owns = [tmp_path / name / "rescale" for name in ("one", "two")]
    for own in owns:
        own.mkdir(parents=True)

    def run(path, **ways):
        assert offer(checkpoint=[str(own.parent) for own in owns], code=f"{path}:limit", **ways) == 0
        (name,) = capsys.readouterr().out.split()
        return Offers(owns[1]).load(name)

    return run


def test_files_of_one_name_and_a_file_that_was_edited_each_give_their_own_code(tmp_path, offered):
    def step_of(path):
        return offered(path).by

    for folder, limit in (("a", 10), ("b", 99)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rules.py").write_text(RULES.format(limit))
    assert not step_of(tmp_path / "a" / "rules.py").function({"key": 50})
    assert step_of(tmp_path / "b" / "rules.py").function({"key": 50})
    (tmp_path / "a" / "rules.py").write_text(RULES.format(60))
    assert step_of(tmp_path / "a" / "rules.py").function({"key": 50})


def test_a_file_that_cannot_be_loaded_is_refused_each_time(tmp_path, offered):
    path = tmp_path / "rules.py"
    path.write_text(RULES.format(10) + "1 / 0\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"rules.py cannot be loaded: ZeroDivisionError"):
            offered(path)


def test_code_of_one_file_is_one_module(tmp_path, offered):
    path = tmp_path / "rules.py"
    path.write_text(RULES.format(10) + "to = [limit].copy\nback = to\n")
    given = offered(path, migrate="to", back="back")
    assert given.migrate()[0] is given.by


def test_what_is_damaged_is_offered_anew(tmp_path, offered):
    (tmp_path / "rules.py").write_text(RULES.format(10))
    offered(tmp_path / "rules.py")
    for own in ("one", "two"):
        (file,) = (tmp_path / own / "rescale" / "offered").iterdir()
        file.write_bytes(b"x")
        with pytest.raises(UsageError, match="is damaged"):
            Offers(file.parents[1]).load(file.name)
    assert offered(tmp_path / "rules.py").by.name == "limit"


def test_code_is_offered_to_a_checkpoint_only(tmp_path):
    (tmp_path / "rules.py").write_text(RULES.format(10))
    with pytest.raises(UsageError, match="There is no query's checkpoint in"):
        offer(checkpoint=[str(tmp_path)], code=f"{tmp_path}/rules.py:limit")


def test_what_is_no_offer_is_refused(offered, tmp_path):
    name = Offers(tmp_path / "two" / "rescale").put(pickle.dumps({"by": 1}))
    with pytest.raises(UsageError, match="is a dict and no offer"):
        Offers(tmp_path / "two" / "rescale").load(name)
