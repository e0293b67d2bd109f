"""Environments of workers in real time, as their tasks open them."""

from dataclasses import replace

from impls.worker.batches import begin_batch
from impls.worker.environment import Environment


def open_environment(task, batch=0, *, resumed=False):
    """Opens a worker's environment, and begins one of Spark's batches in it."""
    env = Environment(replace(task, single=False))
    try:
        begin_batch(env, batch, resumed=resumed)
    except BaseException:
        env.close()
        raise
    return env
