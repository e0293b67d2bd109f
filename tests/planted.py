"""Bugs that several simulations must find."""

from dataclasses import replace

from impls.protocol.controller import Controller
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


def dropped_before_the_pull_is_observed(patch):
    plain = Controller.plan

    def plan(self, epoch, generation, now_ms=0):
        written = plain(self, epoch, generation, now_ms)
        return replace(written, drops=written.drops + tuple((p.bin, p.source) for p in written.plan.pulls))

    patch.setattr(Controller, "plan", plan)
