"""Servers that a test has started end with it."""

import pytest


@pytest.fixture(autouse=True)
def no_server_left(tmp_path):
    """Takes the locks away: a server without its own ends."""
    yield
    for lock in tmp_path.rglob(".transfer-*.lock"):
        lock.unlink(missing_ok=True)
