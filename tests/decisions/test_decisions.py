"""Single decisions: replay, denials, reservations, reasons and counter-offers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pdp.builders import (
    GLOBAL,
    HEAD,
    ZIP,
    body,
    mechanism,
    noise,
    policy,
    pure,
    started,
)

from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.policy.accounting.accounting_defaults import (
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.releases.decision import Decision
from dpolicy.releases.edits import with_more_noise, without_attribute, without_mechanism

CAP = "  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n"
TEAM = "  - {name: team, kind: custom, when: 'labels.team == \"ads\"', unit: user, budget: %s}\n"


def one(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A release with one mechanism and additional fields."""
    return body("r", {**fields, **more})


# Idempotency


def test_the_same_body_always_gets_the_recorded_decision() -> None:
    store = MemoryStore()
    point = started(store=store)
    first = point.submit(pure("a", "1.5"))
    denied = point.submit(pure("b", "1"))
    point.apply(
        policy("  - {name: p, kind: custom, when: always, unit: user, budget: unlimited}\n")
    )
    length = len(list(store.records_after(0)))
    for again in (point, DecisionPoint(store)):
        assert again.submit(pure("a", "1.5")) == replace(first, replayed=True)
        assert again.reserve(pure("b", "1")) == replace(denied, replayed=True)
    assert (first.allowed, denied.allowed) == (True, False)
    assert len(list(store.records_after(0))) == length


def test_another_body_under_the_same_id_is_an_error() -> None:
    point = started()
    point.submit(pure("a", "1"))
    for ask in (point.submit, point.reserve):
        with pytest.raises(OperationRejected, match="another release"):
            ask(pure("a", "1.000000000001"))
    with pytest.raises(OperationRejected, match="used for another release"):
        point.import_past(pure("a", "0.5"))


def test_a_decision_survives_json() -> None:
    decision = started().submit(pure("a", "3", "zip"))
    assert Decision.from_json(decision.as_json()) == decision


# Denials


def test_an_uncovered_mechanism_is_denied_unless_the_policy_allows_it() -> None:
    only = ZIP % "{epsilon: 2}"
    both = body("r", mechanism(("zip",), epsilon="1"), mechanism(("views",), epsilon="1"))
    decision = started(only).submit(both)
    assert (decision.allowed, decision.uncovered) == (False, ("mechanism 2",))
    head = HEAD.replace("{delta: 1e-7}", "{delta: 1e-7, uncovered: allow}")
    assert started(only, head=head).submit(both).allowed


def test_an_evaluation_error_denies_and_is_reported() -> None:
    point = started(GLOBAL, TEAM % "{epsilon: 1}")
    decision = point.submit(pure("a", "0.1"))
    assert not decision.allowed
    assert decision.predicate_errors
    assert not decision.exceeded_rules
    assert point.submit(one({**mechanism(epsilon="0.1"), "labels": {"team": "maps"}})).allowed


def test_an_error_in_a_per_release_rule_denies_too() -> None:
    assert not started(GLOBAL, each=TEAM % "{epsilon: 1}").submit(pure("a", "0.1")).allowed


@pytest.mark.parametrize(
    ("defaults", "exceeding"),
    [(SECOND_DEFAULTS, "1.000000000001"), (NEWEST_DEFAULTS, "1.000001")],
)
def test_per_release_rules_do_not_accumulate(defaults: AccountingDefaults, exceeding: str) -> None:
    """A loss distribution certifies ε 1 at δ 10⁻⁷ for a pure ε that exceeds it by 10⁻¹²."""
    point = started(
        "  - {name: g, kind: custom, when: always, unit: user, budget: unlimited}\n",
        each=CAP,
        defaults=defaults,
    )
    for number in range(20):
        assert point.submit(pure(f"r{number}", "1")).allowed
    decision = point.submit(pure("big", exceeding))
    assert decision.exceeded_rules == ("cap",)
    assert decision.reasons[0].spent == {"epsilon": 0.0, "delta": 0.0}


def test_a_release_is_charged_as_a_whole_or_not_at_all() -> None:
    point = started(GLOBAL, each=CAP)
    halves = [mechanism(epsilon="0.6"), mechanism(("zip",), epsilon="0.6")]
    decision = point.submit(body("both", *halves))
    assert decision.exceeded_rules == ("cap",)
    assert decision.reasons[0].cost == {"epsilon": 1.2, "delta": 0.0}
    assert point.budgets()[0].spent == {"epsilon": 0.0, "delta": 0.0}
    assert point.submit(body("one", halves[0])).allowed


def test_all_problems_are_reported_at_once() -> None:
    head = HEAD.replace("{delta: 1e-7}", "{delta: 1e-7, require: additive}")
    head = head.replace("team: {values: [ads, maps]}", "team: {values: [ads], required: true}")
    wrong = {
        **mechanism(("zap",), epsilon="1"),
        "unit": "usr",
        "labels": {"stage": "finl", "colour": "red"},
        "where": [{"county": ["AT"]}, {"country": ["FR"]}, {"age": {"from": 5, "to": 500}}],
    }
    with pytest.raises(ReleaseRejected) as refused:
        started(GLOBAL, head=head).submit(body("r", wrong, {**wrong, "name": "second"}))
    problems = refused.value.problems
    codes = sorted(problem.code for problem in problems)
    each = ["R001", "R002", "R003", "R004", "R005", "R006", "R006", "R006", "R007"]
    assert codes == sorted(2 * each)
    assert {p.message.partition(":")[0] for p in problems} == {"`mechanism 1`", "`second`"}
    assert any("`zip`" in p.message for p in problems)  # did you mean


def test_a_rejected_release_is_not_recorded() -> None:
    store = MemoryStore()
    point = started(store=store)
    with pytest.raises(ReleaseRejected):
        point.submit(pure("a", "1", "zap"))
    assert len(list(store.records_after(0))) == 1
    assert point.submit(pure("a", "1", "zip")).allowed


def test_nothing_is_decided_without_a_policy() -> None:
    point = DecisionPoint(MemoryStore())
    for ask in (point.submit, point.check, point.reserve):
        with pytest.raises(OperationRejected, match="no active policy"):
            ask(pure("a", "1"))


# Reservations


class Watch:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_reservation_is_charged_and_a_void_restores_the_balance_exactly() -> None:
    point = started()
    untouched = point.budgets()[0].loss
    point.reserve(pure("a", "1.7"))
    assert not point.submit(pure("b", "0.7")).allowed
    for because in ("", "  "):
        with pytest.raises(OperationRejected, match="because"):
            point.void("a", because=because)
    point.void("a", because="never started")
    assert point.budgets()[0].loss == untouched
    with pytest.raises(OperationRejected, match="voided"):
        point.void("a", because="x")
    with pytest.raises(OperationRejected, match="voided"):
        point.commit("a")
    assert point.submit(pure("c", "2")).allowed


@pytest.mark.parametrize("how", ["commit", "submit", "deny", "unknown"])
def test_only_a_reservation_can_be_ended(how: str) -> None:
    point = started()
    point.reserve(pure("commit", "0.5"))
    point.commit("commit")
    point.submit(pure("submit", "0.5"))
    point.submit(pure("deny", "5"))
    with pytest.raises(OperationRejected):
        point.void(how, because="x")
    with pytest.raises(OperationRejected):
        point.commit(how)


def test_a_commit_may_use_less_and_never_more() -> None:
    point = started()
    point.reserve(pure("a", "1.5"))
    with pytest.raises(OperationRejected, match="costs more than the reservation"):
        point.commit("a", pure("a", "1.6"))
    point.commit("a", pure("a", "0.5"))
    assert point.budgets()[0].spent == {"epsilon": 0.5, "delta": 0.0}
    assert point.submit(pure("b", "1.5")).allowed


def test_an_expired_reservation_stays_charged() -> None:
    watch, store = Watch(), MemoryStore()
    started(store=store)
    point = DecisionPoint(store, watch)
    point.reserve(pure("a", "1.5"))
    watch.now += timedelta(hours=24)
    assert not point.submit(pure("b", "1")).allowed
    assert point.entries["a"].status == "reserved"  # to the second
    watch.now += timedelta(seconds=1)
    assert not point.submit(pure("c", "1")).allowed
    assert point.entries["a"].status == "expired"
    with pytest.raises(OperationRejected, match="expired"):
        point.void("a", because="x")
    with pytest.raises(OperationRejected, match="expired"):
        point.commit("a")
    assert point.budgets()[0].spent == {"epsilon": 1.5, "delta": 0.0}


# Reasons and counter-offers

NOISES = st.one_of(
    st.builds(lambda e: noise(epsilon=e), st.sampled_from(("0.3", "1", "2.5"))),
    st.builds(lambda r: noise(rho=r), st.sampled_from(("0.01", "0.1", "1"))),
    st.builds(lambda s: noise(kind="gaussian", sigma=s), st.sampled_from(("0.5", "3", "20"))),
    st.builds(lambda b: noise(kind="laplace", scale=b), st.sampled_from(("0.4", "1", "7"))),
)
RULES = (
    GLOBAL
    + ZIP % "{epsilon: 1.5, delta: 0}"
    + "  - {name: z, kind: custom, when: always, unit: user, budget: {rho: 0.5}}\n"
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NOISES, st.booleans()), min_size=1, max_size=6))
def test_displayed_losses_exceed_the_budget_exactly_if_the_rule_is_exceeded(
    requests: list[tuple[dict[str, Any], bool]],
) -> None:
    point = started(RULES, each=CAP)
    for number, (fields, zips) in enumerate(requests):
        attributes = ["zip"] if zips else []
        stated = {"mechanism": fields, "unit": "user", "attributes": attributes}
        request = body(f"r{number}", stated)
        decision = point.submit(request)
        assert decision.allowed == (not decision.exceeded_rules)
        for reason in decision.reasons:
            check_numbers(reason)
        for offer in decision.counter_offers:
            check_offer(point, request, offer)


def check_numbers(reason: Any) -> None:
    """Check that spent ≤ after, cost ≤ after, and after > budget exactly if exceeded."""
    notion = next(iter(reason.spent))
    spent, cost, after = (
        float("inf") if side[notion] is None else side[notion]
        for side in (reason.spent, reason.cost, reason.after)
    )
    assert after >= max(spent, cost)
    assert (after > reason.budget[notion]) == (not reason.holds), reason


def check_offer(point: DecisionPoint, request: Any, offer: Any) -> None:
    """Check that the offer is allowed, and that one percent less noise is denied."""
    if "attribute" in offer:
        changed: Any = without_attribute(request, offer["attribute"])
    elif "mechanism" in offer:
        names = [f"mechanism {n}" for n, _ in enumerate(request["mechanisms"], 1)]
        changed = without_mechanism(request, names.index(offer["mechanism"]))
    elif "factor" not in offer:
        assert offer["change"] == "set noise parameters"
        changed = offer["release"]
    else:
        factor = Fraction(str(offer["factor"]))
        changed = with_more_noise(request, factor)
        less = with_more_noise(request, factor * Fraction(99, 100))
        assert less is not None
        assert not point.check({**less, "release": "less"}).allowed
    assert point.check({**changed, "release": "offer"}).allowed


def test_every_exceeded_rule_is_named_and_every_kind_of_offer_occurs() -> None:
    point = started(RULES, each=CAP)
    decision = point.submit(
        body("r", mechanism(("zip",), epsilon="4"), mechanism(("views",), epsilon="0.5"))
    )
    assert set(decision.exceeded_rules) == {"global", "zips", "z", "cap"}
    kinds = [offer["change"] for offer in decision.counter_offers]
    assert kinds == [
        "set noise parameters",
        "scale every noise parameter by",
        "leave out mechanism",
    ]
    only = started(ZIP % "{epsilon: 1}", GLOBAL).submit(pure("r", "1.5", "zip", "views"))
    outlines = [(offer["change"], offer.get("attribute")) for offer in only.counter_offers]
    assert ("leave out attribute", "zip") in outlines


def test_top_spenders_are_named() -> None:
    point = started()
    for number, epsilon in enumerate(("0.1", "0.9", "0.3")):
        point.submit(pure(f"r{number}", epsilon))
    assert point.submit(pure("last", "1")).reasons[0].spenders == ("r1", "r2", "r0")


def test_an_allowed_release_shows_its_tightest_rules() -> None:
    decision = started(RULES).submit(pure("r", "1", "zip"))
    assert [reason.rule for reason in decision.reasons] == ["z", "zips", "global"]
    assert all(reason.holds for reason in decision.reasons)


def test_a_check_writes_nothing_and_gives_the_same_decision() -> None:
    store = MemoryStore()
    point = started(store=store)
    before = list(store.records_after(0))
    checked = point.check(pure("r", "1"))
    assert list(store.records_after(0)) == before
    assert checked.sequence is None
    assert replace(point.submit(pure("r", "1")), sequence=None) == checked
