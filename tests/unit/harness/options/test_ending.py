"""Every command ends alike: an exit code, and one sentence on standard error for what went wrong."""

import pytest

from generators.spec import GeneratorError
from harness.options import ending
from impls.errors import StateError, UsageError


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UsageError("Bad input."), 2, "Bad input.\n"),
        (GeneratorError("Bad load."), 2, "Bad load.\n"),
        (StateError("It failed."), 1, "It failed.\n"),
        (KeyboardInterrupt(), 130, "go on\n"),
    ],
)
def test_errors_become_exit_codes(capsys, raised, code, said):
    @ending("go on")
    def command(error):
        raise error

    assert command(raised) == code
    assert tuple(capsys.readouterr()) == ("", said)


def test_what_is_no_users_error_is_not_hidden():
    @ending()
    def command():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


def test_a_command_s_own_code_and_name_stay(capsys):
    @ending()
    def command(code: int) -> int:
        """Returns it."""
        return code

    assert (command(7), command.__name__, command.__doc__) == (7, "command", "Returns it.")

    @ending()
    def cut_off() -> int:
        raise KeyboardInterrupt

    assert cut_off() == 130
    assert capsys.readouterr().err == ""
