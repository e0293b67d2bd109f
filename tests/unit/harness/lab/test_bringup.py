"""Services that are taken down: what went wrong before is what is raised."""

from types import SimpleNamespace

import pytest

from harness.lab.bringup import bring_up


def gone():
    raise ConnectionRefusedError


def test_a_session_whose_jvm_is_gone_does_not_hide_what_failed(tmp_path, monkeypatch):
    session = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=object()), stop=gone)
    monkeypatch.setattr("harness.lab.broker.ExternalBroker.start", lambda _: None)
    with pytest.raises(ZeroDivisionError), bring_up(tmp_path, bootstrap="127.0.0.1:1", session=lambda: session):
        raise ZeroDivisionError
