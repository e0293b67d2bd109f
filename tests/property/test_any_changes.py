"""Changes of a pipeline under any readiness, failures, restarts and orders of requests: what always holds of them."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from impls.protocol.changing import PROOF_EPOCHS, TRIAL_EPOCHS, Bins, Changing
from impls.protocol.events import ChangeBegun, ChangeDone, ChangeRefused
from impls.protocol.versions import Change, Failure, Version, Versions, path_between, shape_of, way_back
from impls.protocol.view import Observation

BINS = 6
EPOCHS = 18
LOCATION = np.arange(BINS, dtype=np.int32) % 2
SIZES = np.arange(BINS, dtype=np.int64) * 40

_kinds = st.fixed_dictionaries(
    {"migrates": st.booleans(), "returns": st.booleans(), "lazy": st.booleans(), "budget_bytes": st.integers(1, 200)}
)
_requests = st.lists(st.tuples(st.integers(0, EPOCHS // 2), _kinds), min_size=1, max_size=4)
_epochs = st.lists(
    st.fixed_dictionaries(
        {
            "ready": st.lists(st.booleans(), min_size=BINS, max_size=BINS),
            "calm": st.sampled_from([True, True, True, False]),
            "tried": st.integers(0, 3),
            "fails": st.sampled_from([False] * 5 + [True]),
            "touched": st.sets(st.integers(0, BINS - 1)),
            "late": st.sets(st.integers(0, BINS - 1)),
            "stuck": st.sets(st.integers(0, BINS - 1)),
            "restarts": st.booleans(),
        }
    ),
    min_size=EPOCHS,
    max_size=EPOCHS,
)
QUIET = {"ready": [True] * BINS, "calm": True, "tried": 1, "fails": False, "restarts": False}
QUIET |= {"touched": (), "late": (), "stuck": ()}


def restarted(changing):
    other = Changing(BINS)
    other.restore(json.loads(json.dumps(changing.to_json())))
    return other


class Story:
    """A query whose workers do what plans say, turn touched bins' states, and fail or not as they are told.

    The `back` of a version fails on the states of `stuck` bins, which keep their shape and are reported.

    Between two epochs bins that are touched `late` take their shape as in the last plan, as they do in real-time mode.
    """

    def __init__(self, requests):
        self.requests, self.changing = sorted(requests, key=lambda r: r[0]), Changing(BINS)
        self.states, self.events, self.asked = np.zeros(BINS, np.int32), [], []
        self.last, self.turned, self.kept = None, [], []

    def epoch(self, number, given):
        changing = self.changing
        while self.requests and self.requests[0][0] <= number:
            _, how = self.requests.pop(0)
            version = Version(1 + len(self.asked), changing.latest, "code", "label", **how)
            self.asked.append(f"c{version.number}")
            changing.accept(Change(self.asked[-1], version, number))
        changing.activate(number)
        bins = Bins(np.array(given["ready"]), LOCATION, SIZES, given["calm"])
        planned, again = changing.plan(bins), restarted(changing).plan(bins)
        assert (planned is None) == (again is None)
        if planned is None:
            return None
        assert planned.to_json() == again.to_json()
        before = changing.required.copy()
        planned = Versions.from_json(json.loads(json.dumps(planned.to_json())))
        changing.hold(planned)
        self._work(planned, given)
        failed = [Failure(planned.trial or planned.guarded, "it broke")] if given["fails"] else []
        seen = Observation(
            number, turned=tuple(self.turned), tried=given["tried"] if planned.trial else 0,
            failed=(*(failed if failed and failed[0].version else ()), *self.kept),
        )  # fmt: skip
        self.turned, self.kept = [], []
        self.events += changing.observe(seen)
        self._check(before, planned, given)
        if given["restarts"]:
            self.changing = restarted(changing)
        for bin_ in sorted(given["late"]):
            self._turn(bin_, planned)
        return planned

    def _work(self, planned, given):
        refused = planned.guarded and given["fails"]
        for bin_ in sorted({*given["touched"], *(() if refused else planned.refits)}):
            if not (refused and planned.required[bin_] == planned.guarded):
                self._turn(bin_, planned, given["stuck"])

    def _turn(self, bin_, planned, stuck=()):
        shape, versions = shape_of(int(planned.required[bin_]), self.changing.versions), self.changing.versions
        back = [number for number, way in path_between(int(self.states[bin_]), shape, versions) if way == "back"]
        if bin_ in stuck and back == [planned.guarded] and versions[back[0]].returns:
            self.kept.append(Failure(planned.guarded, "no way back", bin_))
        elif self.states[bin_] != shape and way_back(int(self.states[bin_]), shape, versions):
            self.states[bin_] = shape
            self.turned.append((bin_, shape))

    def _check(self, before, planned, given):
        changing, versions = self.changing, self.changing.versions
        for bin_, (old, new) in enumerate(zip(before.tolist(), changing.required.tolist(), strict=True)):
            parents = {versions[n].parent for n in (old, new) if n}
            assert old == new or {old, new} & parents, f"bin {bin_} goes from {old} to {new}"
        assert np.array_equal(changing.shape, self.states)
        switched = np.flatnonzero(planned.required != before)
        assert all(given["ready"][bin_] for bin_ in (*switched.tolist(), *planned.refits))
        assert given["calm"] or not (len(switched) or planned.refits or planned.trial)
        for id_ in self.asked:
            assert changing.outcome(id_) is not None
        if not planned.guarded:
            self._check_ways(planned)

    def _check_ways(self, planned):
        """Where nothing is guarded, no state has to go back for the version under which its bin runs."""
        changing = self.changing
        for bin_ in range(BINS):
            shape = shape_of(int(planned.required[bin_]), changing.versions)
            path = path_between(int(self.states[bin_]), shape, changing.known)
            assert all(way == "migrate" for _, way in path), f"bin {bin_} would have to go back by {path}"


@given(_requests, _epochs)
def test_any_story_of_changes_ends_with_each_of_them_done_or_refused(requests, epochs):
    story = Story(requests)
    for number, given_ in enumerate(epochs):
        story.epoch(number, given_)
    rest = len(requests) * (TRIAL_EPOCHS + 2 * BINS + PROOF_EPOCHS + 4)
    for number in range(len(epochs), len(epochs) + rest):
        story.epoch(number, QUIET)
    assert not story.changing.active
    ends = {id_: story.changing.outcome(id_).state for id_ in story.asked}
    assert set(ends.values()) <= {"done", "refused"}
    told = {event.version for event in story.events if isinstance(event, ChangeDone)}
    refused = {event.version for event in story.events if isinstance(event, ChangeRefused)}
    assert {int(id_[1:]) for id_, state in ends.items() if state == "refused"} == refused
    assert {int(id_[1:]) for id_, state in ends.items() if state == "done"} == told - refused
    begun = [event.version for event in story.events if isinstance(event, ChangeBegun)]
    assert begun == sorted(begun)


@given(_requests, _epochs)
def test_a_change_is_done_when_all_bins_and_their_states_agree(requests, epochs):
    story, known = Story(requests), 0
    for number, given_ in enumerate([*epochs, *[QUIET] * 60]):
        story.epoch(number, given_)
        for event in story.events[known:]:
            if isinstance(event, ChangeDone):
                assert (story.changing.required == event.version).all()
                assert (story.changing.shape == shape_of(event.version, story.changing.versions)).all()
        known = len(story.events)


@given(_requests, _epochs)
def test_restarts_change_no_plan(requests, epochs):
    plans = []
    for restarts in (False, True):
        story = Story(requests)
        told = [story.epoch(n, {**given_, "restarts": restarts}) for n, given_ in enumerate(epochs)]
        plans.append([None if planned is None else planned.to_json() for planned in told])
    assert plans[0] == plans[1]


@given(_requests, _epochs)
def test_what_is_guarded_can_go_back_and_nothing_else_is(requests, epochs):
    story = Story(requests)
    for number, given_ in enumerate(epochs):
        planned = story.epoch(number, given_)
        if planned is None:
            continue
        versions, guarded = story.changing.versions, planned.guarded
        assert not (guarded and planned.trial)
        others = set(planned.required.tolist()) - {guarded}
        if guarded:
            kept = {n for n in others if versions[guarded].parent != n and n}
            assert not kept, f"beside version {guarded} bins run under {kept}"
