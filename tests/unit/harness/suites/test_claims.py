"""Claims: each predicate tells true from false and from not known; what decides is stored results alone."""

import json

import pytest
from synthetic import new_experiment, write_sweep

from harness.files import read_json, write_json
from harness.suites.claims import verify
from harness.suites.claims.claims import CLAIMS_FILE, Claim, ClaimSource, read_claims
from harness.suites.claims.evidence import EVIDENCE_FILE, Evidence, NotKnown
from harness.suites.claims.predicates import PREDICATES
from harness.suites.claims.verify import check, run_claims
from harness.suites.sweep import make_grid
from impls import catalog
from impls.errors import UsageError
from plots.metrics import METRICS

PLACEMENT = ClaimSource("placement", "placement", 0, 0)
ALL_AT_ONCE, FLUID, BATCHED = "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched"
PEAK = "latency_migrating_max_ms"


@pytest.fixture(scope="module")
def bench_folder(tmp_path_factory):
    return new_experiment(tmp_path_factory, seconds=18, rate=500, rounds=2)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "20260101-000000-sweep"
    write_sweep(folder, make_grid({"mechanism": f"{ALL_AT_ONCE},{BATCHED}", "keys": "400k,800k,1600k"}))
    return Evidence(folder)


@pytest.fixture
def edited(bench_folder):
    """Gives the evidence with result.json changed, and puts the original back."""
    path = bench_folder / "result.json"
    original = path.read_text()

    def edit(change=lambda _run: None):
        result = json.loads(original)
        for run in result["runs"]:
            change(run)
        path.write_text(json.dumps(result))
        return Evidence(bench_folder)

    yield edit
    path.write_text(original)


def holds(predicate, evidence, **arguments):
    return PREDICATES[predicate](evidence, **arguments).holds


def of(name, **changes):
    def change(run):
        if run["mechanism"] == name:
            run.update(changes)

    return change


def test_the_claims_are_well_formed_and_name_what_there_is():
    claims = read_claims()
    assert len(claims) >= 15
    metrics = {metric.name for metric in METRICS}
    for claim in claims:
        verify.find(claim.source, CLAIMS_FILE.parent)  # raises for an experiment that cannot be
        arguments = claim.arguments
        named = [arguments.get("mechanism"), *arguments.get("mechanisms", [])]
        named += arguments["than"] if isinstance(arguments.get("than"), list) else [arguments.get("than")]
        assert {name for name in named if name} <= set(catalog.names()), claim.name
        assert arguments.get("metric", "peak_ratio") in metrics, claim.name
        assert check(claim, Evidence()).verdict in {"PASS", "UNKNOWN"}, "its arguments do not fit its predicate"
        assert claim.sentence.endswith(".")
        assert claim.mirrors == "new" or "(" in claim.mirrors, "the paper with its year"
        if claim.source.kind in {"bench", "sweep"}:
            assert {name for name in named if name} <= set(mechanisms_of(claim.source))


def mechanisms_of(source):
    asked = verify.described(source)
    return asked.to_json()["mechanisms"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "cannot be read"),
        ('[[claim]]\nname = "a"', "names the experiment '', which is not there"),
        ('[experiments.x]\nkind = "dance"\nminutes = 1\ndisk_gb = 1', "must be one of bench, sweep"),
        ('[experiments.x]\nkind = "bench"', "not well formed"),
        ('@experiment = "x"', "not well formed"),
        ('@experiment = "x"\nsentence = "s"\nmirrors = "new"\npredicate = "guess"', "names the predicate 'guess'"),
        ('@experiment = "x"\nsentence = "s"\nmirrors = "new"\npredicate = "all_valid"\nexpect = "FAIL"', "a reason"),
    ],
)
def test_claims_that_are_not_well_formed_are_named(tmp_path, text, words):
    head = '[experiments.x]\nkind = "placement"\nminutes = 0\ndisk_gb = 0\n[[claim]]\nname = "a"\n'
    path = tmp_path / "claims.toml"
    path.write_text(text.replace("@", head))
    with pytest.raises(UsageError, match=words):
        read_claims(path)


def test_a_claim_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "claims.toml"
    text = CLAIMS_FILE.read_text()
    path.write_text(text + text[text.rindex("[[claim]]") :])
    with pytest.raises(UsageError, match="is there twice"):
        read_claims(path)


@pytest.mark.capability
def test_all_valid(edited):
    assert holds("all_valid", edited())
    assert not holds("all_valid", edited(of(BATCHED, verdict="invalid", reasons=["3 lost"])))
    with pytest.raises(NotKnown, match="no checker"):
        holds("all_valid", edited(of(BATCHED, verdict="unknown", reasons=["no checker"])))


def test_below_compares_medians_of_ratios_of_one_round(edited):
    evidence = edited()
    same = {"metric": PEAK, "mechanisms": [FLUID, BATCHED]}
    assert holds("below", evidence, **same, than=[ALL_AT_ONCE, "runtime-restart"])
    assert not holds("below", evidence, **same, than=[ALL_AT_ONCE, FLUID])
    assert not holds("below", evidence, **same, than=[ALL_AT_ONCE], limit=0.1)
    assert holds("below", evidence, **same, than=[ALL_AT_ONCE], limit=0.1, tolerance=9.0)
    mixed = {"metric": PEAK, "mechanisms": ["runtime-restart", FLUID], "than": [ALL_AT_ONCE]}
    assert not holds("below", evidence, **mixed)
    found = PREDICATES["below"](evidence, **mixed, some=True)
    assert found.holds
    assert found.figures.startswith(f"{FLUID} "), "what holds is said first"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "unknown"}, "a run of megaphone-fluid is unknown"),
        ({"load": "late"}, "the load of every run of megaphone-fluid came late"),
        ({"migrations": [], "timeline": []}, "has no duration"),
    ],
)
def test_figures_that_may_not_be_used_leave_a_claim_unknown(edited, change, words):
    evidence = edited(of(FLUID, **change))
    claim = Claim(
        "c", "s.", PLACEMENT, "below", "new",
        arguments={"metric": "migration_s", "mechanisms": [BATCHED], "than": [FLUID]},
    )  # fmt: skip
    checked = check(claim, evidence)
    assert checked.verdict == "UNKNOWN"
    assert words in checked.figures
    assert not checked.as_expected


def test_a_mechanism_without_a_run_leaves_a_claim_unknown(edited):
    with pytest.raises(NotKnown, match="there is no run of meces"):
        holds("at_most", edited(), metric="peak_ratio", mechanisms=["meces"], limit=2)


def test_at_most_looks_at_the_upper_end_over_rounds(edited):
    def change(run):
        for migration in run["migrations"]:
            migration["peak_ratio"] = 1.04 if run["round"] else 1.0

    evidence = edited(change)
    assert holds("at_most", evidence, metric="peak_ratio", mechanisms=[FLUID, BATCHED], limit=1.04)
    assert not holds("at_most", evidence, metric="peak_ratio", mechanisms=[FLUID], limit=1.03), "above the median, 1.02"
    assert holds("at_most", evidence, metric="peak_ratio", mechanisms=[FLUID], limit=1.03, tolerance=0.02)


def spread_by(factor):
    """The peaks of fluid and batched, further and further apart from round to round around what they were."""

    def change(run):
        if run["mechanism"] in {FLUID, BATCHED}:
            run["latency_ms"]["migrating"]["max"] *= factor if run["round"] else 1 / factor
            for migration in run["migrations"]:
                settled = 1.0 * (factor if run["round"] else 1 / factor)
                migration |= {"peak_ratio": settled, "settled_s": settled}
        elif run["mechanism"] == "runtime-restart":
            for migration in run["migrations"]:
                migration["settled_s"] = 6.0

    return change


@pytest.mark.parametrize(
    ("predicate", "asked"),
    [
        ("at_most", {"metric": "peak_ratio", "mechanisms": [BATCHED], "limit": 1.2}),
        ("at_least", {"metric": "peak_ratio", "mechanisms": [BATCHED], "limit": 0.8}),
        ("below", {"metric": PEAK, "mechanisms": [BATCHED], "than": [ALL_AT_ONCE]}),
        ("settles_sooner", {"mechanisms": [BATCHED], "than": "runtime-restart", "factor": 3}),
    ],
)
def test_noise_never_helps_to_keep_a_bound(edited, predicate, asked):
    kept = [holds(predicate, edited(spread_by(factor)), **asked) for factor in (1.0, 1.1, 4.0, 40.0)]
    assert kept == [True, True, False, False]


def test_moves_nothing(edited):
    def move(bins, size):
        return of(FLUID, migrations=[{"bins": bins, "bytes": size}])

    assert holds("moves_nothing", edited(move(16, 0)), mechanism=FLUID)
    assert not holds("moves_nothing", edited(move(0, 0)), mechanism=FLUID), "no bin changed its worker"
    assert not holds("moves_nothing", edited(move(16, 1)), mechanism=FLUID)


@pytest.mark.lengthy
def test_courses_along_an_axis(swept):
    up = {"metric": PEAK, "mechanism": ALL_AT_ONCE, "axis": "keys"}
    assert holds("rises", swept, **up, factor=1.2)
    assert not holds("rises", swept, **up, factor=10)
    assert not holds("flat", swept, **up, limit=1.3)
    still = {**up, "mechanism": BATCHED}
    assert holds("flat", swept, **still, limit=1.5)
    assert not holds("rises", swept, **still, factor=1.5)
    assert holds("gap_widens", swept, metric=PEAK, mechanism=BATCHED, than=[ALL_AT_ONCE], axis="keys")
    assert not holds("gap_widens", swept, metric=PEAK, mechanism=ALL_AT_ONCE, than=[BATCHED], axis="keys")
    assert not holds("gap_widens", swept, metric=PEAK, mechanism=BATCHED, than=[ALL_AT_ONCE], axis="keys", limit=0.1)


def test_a_course_that_falls_in_between_does_not_rise(swept, tmp_path):
    result = read_json(swept.folder / "result.json")
    for run in result["runs"]:
        run["latency_ms"]["migrating"]["max"] = {400_000: 500.0, 800_000: 450.0, 1_600_000: 900.0}[run["cell"]["keys"]]
    write_json(tmp_path / "result.json", result)
    up = {"metric": PEAK, "mechanism": BATCHED, "axis": "keys"}
    assert not holds("rises", Evidence(tmp_path), **up)
    assert holds("rises", Evidence(tmp_path), **up, tolerance=0.1)


def test_below_holds_only_if_it_does_in_every_cell(swept):
    assert holds("below", swept, metric=PEAK, mechanisms=[BATCHED], than=[ALL_AT_ONCE])
    assert not holds("below", swept, metric=PEAK, mechanisms=[BATCHED], than=[ALL_AT_ONCE], limit=0.6)


def test_a_single_cell_shows_no_course(edited):
    with pytest.raises(NotKnown, match="no course"):
        holds("rises", edited(), metric=PEAK, mechanism=BATCHED, axis="keys")


def settling(restart, batched):
    def change(run):
        for migration in run["migrations"]:
            migration["settled_s"] = restart if run["mechanism"] == "runtime-restart" else batched

    return change


@pytest.mark.parametrize(
    ("restart", "batched", "expected"),
    [
        (6.0, 2.0, True), (5.9, 2.0, False), (6.0, 0.0, True), (0.0, 0.0, False), (6.0, None, False),
        (None, 1.0, True), (None, 100.0, False),
    ],
)  # fmt: skip
def test_settles_sooner(edited, restart, batched, expected):
    evidence = edited(settling(restart, batched))
    assert holds("settles_sooner", evidence, mechanisms=[BATCHED], than="runtime-restart", factor=3) is expected


def test_contiguous_ranges_are_computed_and_not_believed():
    right = {"workers": 25, "workers_goal": 30, "bins": 128, "moved": 115, "factor": 5.0}
    found = PREDICATES["contiguous_moves"](Evidence(), **right)
    assert found.holds
    assert "115 of 128" in found.figures
    assert "is 21," in found.figures
    assert not holds("contiguous_moves", Evidence(), **{**right, "moved": 114})
    assert not holds("contiguous_moves", Evidence(), **{**right, "factor": 6.0})


def test_no_violation():
    good = "1000 seeds, 9 epochs, 1 starts of the driver; faults: none; 0 violations in 9 s; digest ab"
    assert holds("no_violation", Evidence(None, {"exit_code": 0, "lines": [good]}), seeds=1000)
    assert not holds("no_violation", Evidence(None, {"exit_code": 0, "lines": [good]}), seeds=2000)
    bad = Evidence(None, {"exit_code": 1, "lines": ["a violation", "Again: ./inv simulate --seed 7"]})
    found = PREDICATES["no_violation"](bad, seeds=1000)
    assert (found.holds, found.figures) == (False, "Again: ./inv simulate --seed 7")
    with pytest.raises(NotKnown, match="exit code 3"):
        holds("no_violation", Evidence(None, {"exit_code": 3, "lines": []}), seeds=1000)


def test_a_stored_result_counts_if_its_parameters_are_those_asked_for(tmp_path):
    source = ClaimSource("x", "bench", 1, 1, {"mechanism": "none,meces", "keys": "1M"})
    stored = json.loads(json.dumps(verify.described(source).to_json()))
    del stored["value_bytes"]  # a parameter that came later
    folder = tmp_path / "20260101-000000-claim-x"
    folder.mkdir()
    write_json(folder / "experiment.json", stored)
    assert verify.find(source, tmp_path) is None, "it is not finished"
    (folder / "done").touch()
    assert verify.find(source, tmp_path).folder == folder
    write_json(folder / "experiment.json", {**stored, "keys": 2_000_000})
    assert verify.find(source, tmp_path) is None


def test_a_command_leaves_what_it_said_and_is_found_again(tmp_path):
    source = ClaimSource("words", "command", 0, 0, module="this")
    made = verify.make(source, tmp_path)
    assert made.said["exit_code"] == 0
    assert any("Beautiful is better" in line for line in made.said["lines"])
    assert read_json(made.folder / EVIDENCE_FILE)["command"] == ["-m", "this"]
    assert verify.find(source, tmp_path).folder == made.folder
    assert verify.find(ClaimSource("words", "command", 0, 0, module="that"), tmp_path) is None


@pytest.fixture
def claims(monkeypatch, edited, bench_folder):
    """Makes `run_claims` check these claims on the synthetic result, whatever experiment they name."""
    source = ClaimSource("synthetic", "bench", 60, 1)
    arguments = {"metric": PEAK, "mechanisms": [BATCHED], "than": [ALL_AT_ONCE]}
    turned = {"metric": PEAK, "mechanisms": [ALL_AT_ONCE], "than": [BATCHED]}
    held = [
        Claim("holds", "It holds.", source, "below", "new", arguments=arguments),
        Claim("fails", "It does not.", source, "below", "new", 0.0, turned, "FAIL", "a [bracketed] reason"),
    ]
    monkeypatch.setattr(verify, "read_claims", lambda: held)
    monkeypatch.setattr(verify, "find", lambda _source, folder: Evidence(bench_folder) if folder.name else None)
    monkeypatch.setattr(verify, "make", lambda *_, **__: pytest.fail("something was run"))
    edited()
    return held


def test_verdicts_as_expected_give_exit_code_0_and_a_fail_has_its_reason(claims, tmp_path, capsys):
    assert run_claims(results=str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "PASS    holds" in out
    assert "FAIL    fails" in out
    assert "reason: a [bracketed] reason" in out
    assert "commit 0123456789ab" in out
    assert out.strip().endswith("2 claims: 1 PASS, 1 FAIL; all as expected")


def test_a_verdict_that_is_not_expected_gives_exit_code_1(claims, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verify, "find", lambda *_: None)
    assert run_claims(results=str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "UNKNOWN holds, expected PASS" in out
    assert "takes about 60 min" in out
    assert "2 UNKNOWN; not as expected: holds, fails" in out


def test_only_and_quick_choose(claims, tmp_path, capsys):
    assert run_claims(results=str(tmp_path), only="fails") == 0
    assert "holds" not in capsys.readouterr().out
    assert run_claims(results=str(tmp_path), quick=True) == 0
    assert "0 claims" in capsys.readouterr().out
    assert run_claims(results=str(tmp_path), only="nothing") == 2
    assert "There is no claim 'nothing': use holds, fails." in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_bad_input(claims, tmp_path, capsys):
    assert run_claims(results=str(tmp_path / "none")) == 2
    assert "is no folder" in capsys.readouterr().err


def test_what_is_missing_is_looked_for_and_made_in_the_output_folder(claims, tmp_path, monkeypatch, bench_folder):
    asked = []
    monkeypatch.setattr(verify, "use_java", lambda: None)
    monkeypatch.setattr(verify, "find", lambda _source, folder: asked.append(folder))
    monkeypatch.setattr(verify, "make", lambda _source, folder, **_: asked.append(folder) or Evidence(bench_folder))
    assert run_claims(output=str(tmp_path)) == 0
    assert asked == [tmp_path, tmp_path]


def test_listing_runs_nothing(claims, capsys):
    assert run_claims(listing=True) == 0
    assert "2 claims, 1 experiments, about 60 min, 1 GB at most" in capsys.readouterr().out


def test_what_is_missing_is_run(claims, monkeypatch, bench_folder, capsys):
    made = []
    monkeypatch.setattr(verify, "use_java", lambda: None)
    monkeypatch.setattr(verify, "find", lambda *_: None)
    monkeypatch.setattr(verify, "make", lambda source, *_, **__: made.append(source.name) or Evidence(bench_folder))
    assert run_claims() == 0
    assert made == ["synthetic"], "once for both claims"
    assert "synthetic: runs now, about 60 min" in capsys.readouterr().out
