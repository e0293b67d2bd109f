"""Errors that a user can act on: each message is one sentence that says what is wrong and what to do."""

ADVICE = "restore it from a copy, or start with a new checkpoint and state folder"  # for a file of a checkpoint
FOR_KEY = " has failed for the key "  # in the note of a user's exception, which the query's last words repeat


class UsageError(Exception):
    """Something the user asked for cannot be done; commands turn it into one line and exit code 2."""


class InvalidPlanError(Exception):
    """A mechanism returned an epoch plan that breaks a rule; the message names the rule and the bin."""


class OperatorError(Exception):
    """An operator cannot go on with a value of a record or of its state; what is stored is sound."""


class StateError(Exception):
    """A worker's stored state cannot be used for the epoch: newer, of another generation, or corrupt."""


class CorruptStateError(StateError):
    """Stored state is damaged, torn or not there; a worker's environment is then rebuilt from the checkpoint."""
