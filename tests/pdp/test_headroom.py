"""Headroom agrees with releases that are submitted one after the other until one is denied."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pdp.builders import GLOBAL, HEAD, ZIP, body, mechanism, noise, policy, pure, started
from tests.pdp.strategies import BODIES, policies
from tests.reference.headroom import repeat_release

from dpolicy.decisions.headroom import repetitions
from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.privacy_filter import UNLIMITED, BoundArrays
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LIMIT = 12


def clock() -> datetime:
    return NOW


def disagreements(point: DecisionPoint, content: dict[str, Any]) -> list[str]:
    """Return where headroom differs from repeated submissions, up to `LIMIT` of them."""
    headroom = point.headroom(content)
    naive = repeat_release(point, clock, content, LIMIT)
    wrong = []
    if min(LIMIT, UNLIMITED if headroom.more is None else headroom.more) != naive.more:
        wrong.append(f"all rules: {headroom.more} instead of {naive.more}")
    if headroom.uncovered or headroom.predicate_errors:
        return wrong
    for rule in headroom.rules:
        count = naive.by_rule.get((rule.rule, rule.unit, rule.each_release), LIMIT)
        if min(LIMIT, UNLIMITED if rule.more is None else rule.more) != count:
            wrong.append(f"{rule.rule}, {rule.unit}: {rule.more} instead of {count}")
    known = {(rule.rule, rule.unit, rule.each_release) for rule in headroom.rules}
    wrong += [f"{key} is missing" for key in naive.by_rule.keys() - known]
    return wrong


HOW = st.sampled_from(("submit", "reserve", "import", "import", "void"))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(), st.lists(st.tuples(HOW, BODIES), max_size=4), BODIES)
def test_headroom_is_the_number_of_submissions(
    stated: dict[str, Any], history: list[tuple[str, Any]], mechanisms: list[Any]
) -> None:
    stated["accounting"]["uncovered"] = "allow"  # else most contents are uncovered, and more is 0
    point = DecisionPoint(MemoryStore(), clock)
    point.apply(compile_policy([Source("policy.json", json.dumps(stated))]))
    for number, (how, contents) in enumerate([*history, ("submit", mechanisms)]):
        release = {"release": f"r{number}", "mechanisms": contents}
        try:
            if how == "import":
                point.import_past(release, because="before")
            elif how == "submit":
                point.submit(release)
            elif point.reserve(release) and how == "void":
                point.void(f"r{number}", because="not run")
        except ReleaseRejected:
            continue
    content = {"release": "content", "mechanisms": mechanisms}
    try:
        point.check(content)
    except ReleaseRejected:
        with pytest.raises(ReleaseRejected):
            point.headroom(content)
        return
    assert not disagreements(point, content)


def placed(country: str | list[str], **parameters: Any) -> dict[str, Any]:
    return {**mechanism(("zip",), **parameters), "where": {"country": country}}


def test_charges_of_overlapping_boxes_add_in_one_block() -> None:
    point = started(GLOBAL)
    both = body("both", placed("AT", epsilon="0.25"), placed(["AT", "CH"], epsilon="0.5"))
    headroom = point.headroom(both)
    assert headroom.more == 2  # 0.75 in AT
    assert headroom.rules[0].location == {"country": "AT", "age": 0}
    assert headroom.rules[0].cost["epsilon"] == 0.75
    assert point.headroom(body("one", placed("CH", epsilon="0.5"))).more == 4


def test_the_fullest_block_limits_the_number() -> None:
    point = started(GLOBAL)
    assert point.submit(body("first", placed("CH", epsilon="1")))
    headroom = point.headroom(body("all", mechanism(("zip",), epsilon="0.25")))
    assert headroom.more == 4 and headroom.first_limit is not None
    assert headroom.first_limit.location["country"] == "CH"
    assert not disagreements(point, body("all", mechanism(("zip",), epsilon="0.25")))


def test_many_cells_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1.5}")
    for age, epsilon in enumerate(("0.5", "0.75", "0.25")):
        place = {"where": {"age": {"from": age, "to": age}}}
        point.submit(body(f"r{age}", {**mechanism(("zip",), epsilon=epsilon), **place}))
    content = body("content", mechanism(("zip",), epsilon="0.25"))
    whole = point.headroom(content)
    monkeypatch.setattr(repetitions, "MAX_COMPARED_AMOUNTS", 1)
    assert point.headroom(content) == whole
    assert whole.more == 3 and whole.rules[0].location["age"] == 1


def test_a_per_release_rule_allows_all_or_none() -> None:
    cap = "  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 0.5}}\n"
    point = started(GLOBAL, each=cap)
    small, large = point.headroom(pure("s", "0.5", "zip")), point.headroom(pure("l", "0.6", "zip"))
    assert (small.more, large.more) == (4, 0)
    assert small.rules[-1].each_release and small.rules[-1].more is None
    assert large.first_limit is not None and large.first_limit.rule == "cap"


def test_no_limit_is_none() -> None:
    unlimited = "  - {name: all, kind: custom, when: always, unit: user, budget: unlimited}\n"
    headroom = started(unlimited).headroom(body("x", mechanism(("zip",), kind="gaussian", sigma=1)))
    assert headroom.more is None and headroom.first_limit is None
    assert headroom.as_json()["more"] is None


def test_an_uncovered_mechanism_leaves_no_headroom() -> None:
    headroom = started(ZIP % "{epsilon: 1}").headroom(pure("x", "0.1", "views"))
    assert headroom.more == 0 and headroom.uncovered == ("mechanism 1",)
    assert headroom.first_limit is None


def test_a_recorded_release_is_named_by_its_id() -> None:
    point = started(GLOBAL)
    point.submit(pure("first", "0.5", "zip"))
    assert point.headroom("first") == point.headroom(pure("first", "0.5", "zip"))
    assert point.headroom("first").more == 3
    with pytest.raises(OperationRejected, match="there is no release `second`"):
        point.headroom("second")


def test_the_part_that_was_run_counts_for_a_committed_reservation() -> None:
    point = started(GLOBAL)
    point.reserve(pure("first", "1", "zip"))
    point.commit("first", pure("first", "0.5", "zip"))
    assert point.headroom("first").more == 3


CONTENTS = (
    pure("small", "0.1", "zip"),
    body("gaussian", mechanism(("zip",), kind="gaussian", sigma=40)),
    body("two", placed("AT", kind="gaussian", sigma=9), placed("CH", kind="laplace", scale=30)),
)


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content["release"])
def test_the_most_accurate_version_fits_and_less_noise_does_not(content: dict[str, Any]) -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    point.submit(pure("first", "0.2", "zip"))
    offer = point.headroom(content, most_accurate=True).most_accurate
    assert offer is not None and offer["factor"] < 1
    fitting = offer["release"]
    assert point.headroom(fitting).more == 1 and point.check(fitting).allowed
    for request in fitting["mechanisms"]:
        for name, power in (("sigma", 1), ("scale", 1), ("epsilon", -1)):
            if name in request["mechanism"]:
                request["mechanism"][name] *= 0.995**power
    assert not point.check(fitting).allowed


def test_the_most_accurate_version_of_a_denied_release_is_an_offer() -> None:
    point = started(GLOBAL)
    content = body("loud", mechanism(("zip",), kind="gaussian", sigma=1))
    headroom = point.headroom(content, most_accurate=True)
    assert headroom.more == 0 and headroom.most_accurate is not None
    assert headroom.most_accurate == point.check(content).counter_offers[0]


def test_a_version_needs_noise_that_can_be_scaled() -> None:
    content = body("x", {**mechanism(("zip",)), "mechanism": noise(renyi={"2": Fraction(1, 10)})})
    assert started(GLOBAL).headroom(content, most_accurate=True).most_accurate is None


def test_saturated_amounts_do_not_fit() -> None:
    maximum = np.array([[INFINITE - 1, -1, 10], [INFINITE, INFINITE, INFINITE]])
    bounds = BoundArrays(maximum, np.array([False, True]))
    spent = np.array([[INFINITE, 0, 0], [INFINITE, 5, 0]])
    assert bounds.count_repetitions(spent, np.full((2, 3), 7)).tolist() == [0, UNLIMITED]
    assert bounds.count_repetitions(np.zeros_like(spent), np.full((2, 3), INFINITE)).tolist() == [
        0,
        UNLIMITED,
    ]


AMOUNTS = st.sampled_from((0, 1, 2, 3, 7, 20, INFINITE - 1, INFINITE))
LIMITS = st.sampled_from((-1, 0, 1, 5, 20, 100, INFINITE - 1, INFINITE))


@settings(max_examples=300, deadline=None)
@given(*(st.lists(numbers, min_size=4, max_size=4) for numbers in (LIMITS, AMOUNTS, AMOUNTS)))
@pytest.mark.parametrize("require_all", [False, True])
def test_a_count_fits_and_one_more_does_not(
    require_all: bool, limits: list[int], spent: list[int], cost: list[int]
) -> None:
    limits[-1] = max(limits[-1], 0)
    bounds = BoundArrays(np.array([limits]), np.array([require_all]))
    (count,) = bounds.count_repetitions(np.array([spent]), np.array([cost])).tolist()

    def fits(number: int) -> bool:
        after = [min(s + number * c, INFINITE) for s, c in zip(spent, cost, strict=True)]
        return bool(bounds.are_within(np.array([after]))[0])

    assert count == 0 or fits(count)
    assert count == UNLIMITED or not fits(count + 1)


Count = Callable[[BoundArrays, Any, Any], Any]


def without_delta(bounds: BoundArrays, spent: Any, cost: Any) -> Any:
    """Ignore the δ-side."""
    free = BoundArrays(bounds.maximum.copy(), bounds.require_all)
    free.maximum[..., -1] = INFINITE
    return COUNT(free, spent, cost)


def without_balance(bounds: BoundArrays, spent: Any, cost: Any) -> Any:
    """Ignore what was spent."""
    return COUNT(bounds, np.zeros_like(spent), cost)


def with_every_certificate(bounds: BoundArrays, spent: Any, cost: Any) -> Any:
    """Require all certificates that are offered."""
    offered = np.where(bounds.maximum < 0, INFINITE, bounds.maximum)
    return COUNT(BoundArrays(offered, np.ones_like(bounds.require_all)), spent, cost)


COUNT: Count = BoundArrays.count_repetitions


@pytest.mark.parametrize("broken", [without_delta, without_balance, with_every_certificate])
def test_the_comparison_detects_wrong_counts(
    broken: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = started(GLOBAL)
    point.submit(body("first", mechanism(("zip",), epsilon="0.5", delta="1e-9")))
    contents = [
        body("delta", mechanism(("zip",), epsilon="0.01", delta="1e-9")),
        body("gaussian", mechanism(("zip",), kind="gaussian", sigma=6)),
    ]
    assert not any(disagreements(point, content) for content in contents)
    monkeypatch.setattr(BoundArrays, "count_repetitions", broken)
    assert any(disagreements(point, content) for content in contents)


def test_collapsed_time_counts_as_one_block() -> None:
    head = HEAD.replace("1e-7}", "1e-7, collapse: {after: 24 months, into: year}}")
    point = DecisionPoint(MemoryStore(), clock)
    day = "  - {name: day, kind: custom, when: always, unit: user-day, budget: {epsilon: 2}}\n"
    point.apply(policy(day, head=head))
    for number, (date, epsilon) in enumerate((("2021-03-01", "1"), ("2021-05-01", "0.5"))):
        point.submit(body(f"r{number}", dated(date, epsilon=epsilon)))
    content = body("content", dated("2021-08-01", epsilon="0.25"))
    assert not disagreements(point, content)
    assert point.headroom(content).more == 2  # all charges of the year, 1.5, are in one block
    assert point.headroom(body("new", dated("2026-02-01", epsilon="0.25"))).more == 8


def dated(day: str, **parameters: Any) -> dict[str, Any]:
    return {**mechanism(("zip",), **parameters), "time": {"from": day, "to": day}}
