"""Part pulls in its quick form, between addresses of this machine: real servers, every way measured."""

import pytest

from harness.suites.perf import pulls
from harness.suites.perf.part import Scale


@pytest.mark.lengthy
def test_bins_are_pulled_from_this_host_and_from_another_with_and_without_tls(tmp_path, monkeypatch):
    monkeypatch.setattr(pulls, "can_isolate", lambda: False)  # namespaces need a whole cluster
    found = pulls.PART.measure(tmp_path / "pulls", Scale(quick=True))
    table, forms = found.tables
    assert [row[0] for row in table.rows] == ["the same host", "loopback", "loopback, TLS"]
    assert table.note.startswith("4 MB of counts, and 0 MB of hash-count's values")
    assert len(forms.rows) > 1
    [check] = found.checks
    assert check.value > 0
    assert not list((tmp_path / "pulls").iterdir()), "nothing is left of what was pulled"
