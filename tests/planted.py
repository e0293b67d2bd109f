"""A bug that several simulations must find."""

from impls.worker import opening
from impls.worker.opened import Cause, Untrusted


def stale_environment_accepted(patch):
    """An environment of an earlier epoch is taken for the one before."""

    def checked(meta, task, path):
        if meta is None:
            raise opening._UnusableError(Untrusted(Cause.MISSING))
        opening._check_owner(meta, task, path)
        return meta

    patch.setattr(opening, "_checked", checked)
