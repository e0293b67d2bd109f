"""What a run's entry says of its hosts, from the epochs' lines."""

from harness.measure.hosts import hosts_entry, hosts_line
from impls.protocol.report import MovesReport, Report


def _report(worker, host, network=(), lost=()):
    return Report(worker, host=host, moves=MovesReport([worker], [1], 10, network=[*network], lost=[*lost]))


def test_an_epoch_on_one_host_says_nothing_of_hosts():
    assert hosts_line([Report(0), Report(1)]) == {}
    assert hosts_entry([{"epoch": 0}], [{"kind": "load_begin"}]) is None


def test_an_epoch_says_where_workers_ran_and_who_pulled_from_whom():
    line = hosts_line([_report(0, "a"), _report(1, "b", [["a", 700, 2.5], ["c", 5, 1.0]], [[3, "gone"]])])
    assert line == {"homes": [[0, "a"], [1, "b"]], "network": [["a", "b", 700, 2.5], ["c", "b", 5, 1.0]], "lost": 1}


def test_a_run_tells_how_often_workers_stayed_and_what_went_between_hosts():
    epochs = [
        {"homes": [[0, "a"], [1, "b"]], "network": [["a", "b", 100, 1.0]], "lost": 0},
        {"homes": [[0, "a"], [1, "a"]], "network": [["a", "b", 50, 0.5], ["b", "a", 7, 2.0]], "lost": 2},
        {"homes": [[0, "a"], [1, "a"], [2, "b"]], "network": [], "lost": 0},
    ]
    events = [
        {"kind": "clocks", "offsets": {"a": [0.1, 0.2], "b": [-4.0, 1.0]}},
        {"kind": "clocks", "offsets": {"a": [-0.3, 0.1], "c": [1.0, 0.5]}},
    ]
    assert hosts_entry(epochs, events) == {
        "hosts": ["a", "b", "c"],
        "stayed_share": 3 / 4,
        "network_bytes": 157,
        "network": [{"between": "a > b", "bytes": 150, "ms": 1.5}, {"between": "b > a", "bytes": 7, "ms": 2.0}],
        "lost_sources": 2,
        "clocks": [
            {"host": "a", "offset_ms": -0.3, "within_ms": 0.1},
            {"host": "b", "offset_ms": -4.0, "within_ms": 1.0},
            {"host": "c", "offset_ms": 1.0, "within_ms": 0.5},
        ],
    }


def test_a_query_without_reports_has_its_clocks_told():
    entry = hosts_entry([{"epoch": 0}], [{"kind": "clocks", "offsets": {"a": [0.5, 0.1]}}])
    assert entry["hosts"] == ["a"]
    assert entry["stayed_share"] is None
    assert entry["network_bytes"] == 0
