"""The work of one commit: its weight, and the cells into which releases cut the balances."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from dpolicy.balances import balances
from dpolicy.balances.segments import Segments
from dpolicy.errors import ReleaseRejected
from dpolicy.ledger.store import LogWriter
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import commands
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.plans import planned_requests
from dpolicy.releases.decision import Decision
from dpolicy.releases.regions import Box, Region
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  attributes: {views: {risk: low}}
  partitions:
    a: {from: 0, to: 99}
    b: {from: 0, to: 99}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 200}}
"""


class CountingStore(MemoryStore):
    """A store that keeps the number of records of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    @contextmanager
    def open_for_writing(self) -> Iterator[LogWriter]:
        before = len(list(self.records_after(0)))
        with super().open_for_writing() as log:
            yield log
        self.commits.append(len(list(self.records_after(0))) - before)


def opened() -> tuple[DecisionPoint, CountingStore]:
    store = CountingStore()
    point = DecisionPoint(store)
    point.apply(compile_policy([Source("policy.yaml", POLICY)]))
    store.commits.clear()
    return point, store


def release(name: str, *boxes: tuple[int, int]) -> dict[str, Any]:
    """Return a release with one mechanism for each box: a range of `a`, and the same of `b`."""
    return {
        "release": name,
        "mechanisms": [
            {
                "mechanism": {"kind": "laplace", "scale": 1e5, "sensitivity": 1},
                "attributes": ["views"],
                "where": {key: {"from": low, "to": high} for key in "ab"},
            }
            for low, high in boxes
        ],
    }


def test_many_boxes_are_decided_in_several_commits() -> None:
    point, store = opened()
    boxes = [(start, start + 3) for start in range(0, 40, 4)]
    decisions = point.submit_many([release(f"r{n}", *boxes) for n in range(10)])
    assert decisions.allowed_count == 10
    assert store.commits == [3, 3, 3, 1], "3 × 10 boxes × 8 are at most 256"
    store.commits.clear()
    assert point.submit_many([release(f"s{n}", (0, 3)) for n in range(200)]).allowed_count == 200
    assert store.commits == [200]


def never_resolve(*_: object) -> None:
    raise AssertionError("the writer resolves the release")


def test_the_writer_does_not_resolve_what_was_resolved_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release with two regions has no planned answer; the record is the same without its plan."""
    twice = release("twice", (0, 3), (2, 9))
    unknown = {**release("unknown", (0, 3)), "mechanisms": [*twice["mechanisms"]]}
    unknown["mechanisms"] = [{**twice["mechanisms"][0], "attributes": ["zip"]}]
    clock = datetime(2026, 3, 1, tzinfo=UTC)
    payloads = []
    for is_planned in (True, False):
        point = DecisionPoint(MemoryStore(), lambda: clock)
        point.apply(compile_policy([Source("policy.yaml", POLICY)]))
        with monkeypatch.context() as patch:
            if is_planned:
                patch.setattr(commands, "resolve_or_reject", never_resolve)
            else:
                patch.setattr(planned_requests, "_try_plan", lambda *_: (None, None))
            assert point.submit(twice).allowed
            with pytest.raises(ReleaseRejected, match="R002"):
                point.submit(unknown)
        payloads.append([record.payload for record in point._journal.store.records_after(0)])
    assert payloads[0] == payloads[1]
    assert len(payloads[0]) == 2


def test_a_release_that_an_earlier_policy_rejected_is_resolved_again() -> None:
    point, _ = opened()
    unknown = release("new", (0, 3), (2, 9))
    for item in unknown["mechanisms"]:
        item["attributes"] = ["zip"]
    request = point._submissions.plans.plan(unknown, "", point._journal.published)
    assert request.rejected is not None
    wider = POLICY.replace("views: {risk: low}", "views: {risk: low}, zip: {risk: high}")
    point.apply(compile_policy([Source("policy.yaml", wider)]))
    answer = point._journal.write(
        lambda log: commands.decide_request(log, request, "", reserve=False)
    )
    assert answer.allowed


def submit_until_refused(point: DecisionPoint) -> ReleaseRejected:
    """Submit releases with new borders until one is refused; return the refusal."""
    for number in range(1, 49):
        try:
            assert point.submit(release(f"r{number}", (number, 99 - number))).allowed
        except ReleaseRejected as error:
            return error
    raise AssertionError("every release cut more cells")


@pytest.mark.parametrize("mechanisms", [1, 2])
def test_a_release_that_cuts_too_many_cells_is_refused(
    mechanisms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a plan (one region) and without (two regions); `check` and `submit` agree."""
    monkeypatch.setattr(balances, "MAX_GRID_AMOUNTS", 2_000)
    point, _ = opened()
    refusal = submit_until_refused(point)
    assert [problem.code for problem in refusal.problems] == ["R008"]
    grids = point._journal._writer.state.totals.balances.grids.grids  # type: ignore[union-attr]
    assert all(grid.amount_count <= 2_000 for grid in grids)
    new = release("new", *[(40 + n, 43 + n) for n in range(0, 5 * mechanisms, 5)])
    before = point.head
    for decide in (point.check, point.submit):
        with pytest.raises(ReleaseRejected, match="R008"):
            decide(new)
    assert point.head == before
    along = release("along", *[(1, 98), (2, 97)][:mechanisms])
    assert point.check(along).allowed
    assert point.submit(along).allowed
    whole = {**along, "release": "whole"}
    whole["mechanisms"] = [
        {key: value for key, value in item.items() if key != "where"}
        for item in along["mechanisms"]
    ]
    assert isinstance(point.submit(whole), Decision)


def test_without_the_bound_cells_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: no estimate of cuts."""
    monkeypatch.setattr(balances, "MAX_GRID_AMOUNTS", 2_000)
    monkeypatch.setattr(Segments, "count_cuts", lambda *_: 0)
    with pytest.raises(AssertionError, match="every release cut"):
        submit_until_refused(opened()[0])


def test_the_estimate_of_cuts() -> None:
    """It is 0 exactly for a region along the borders, and otherwise exact for one box."""
    source = random.Random(3)
    space = ((0, 12), (0, 12), (0, 12))
    segments = Segments(space, np.zeros(1, np.int64))
    for _ in range(300):
        boxes: list[Box] = []
        start = 0
        for _ in range(source.choice([1, 1, 2, 12])):
            low = source.randrange(start, 12)
            first, last = sorted(source.sample(range(13), 2))
            boxes.append(((low, low + 1), (first, last), (0, 12)))
            start = low + 1
            if start == 12:
                break
        region = Region(tuple(boxes))
        copy = segments.copy()
        copy._join_at = 10**9
        copy.add(region, np.ones(1, np.int64))
        cuts = segments.count_cuts(region)
        assert (cuts == 0) == segments.is_cut_along(region) == (len(copy) == len(segments))
        if len(boxes) == 1:
            assert len(copy) - len(segments) <= cuts
        if source.random() < 0.1:
            segments = copy
