"""Spending in any scope equals a naive sum over the ledger, on random histories."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tests.pdp.state_machine import START, Identity, implied_rules, model_policy, witnesses
from tests.pdp.strategies import BODIES, COUNTRIES, lessened, policies, words
from tests.pdp.test_stateful import quick
from tests.reference import ledger_spending, recorded_release
from tests.reference import model as naive
from tests.reference import rules as twin
from tests.reference.ledger_spending import BlockSpending

from dpolicy import DecisionPoint
from dpolicy.balances.granularities import scope_granularity
from dpolicy.errors import DPolicyError, OperationRejected, PredicateFailed, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.spending import (
    computation,
    group_table,
    question,
    scope_charges,
    selected_releases,
)
from dpolicy.pdp.spending.spending import Spending
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.predicates.expression import matches

AUTHORS = ("ana", "ben")
#: Scopes that no rule of the policies has.
SCOPES = (
    None,
    "always",
    'labels.team == "ads"',
    'labels.deployment == "closed" && "b" in attributes',
    '"product" in labels.purpose || mechanism == "laplace"',
    '"country" in attributes',
    'labels.stage == "tuning"',
)
QUESTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(SCOPES),
        "rule": st.none() | st.integers(0, 200),
        "unit": st.integers(0, 3),
        "by": st.sampled_from((None, None, None, None, *AUTHORS, AUTHORS)),
        "days": st.sampled_from((None, None, None, None, 0, 1, 2)),
        "country": st.sampled_from((None, None, None, *COUNTRIES)),
        "delta": st.sampled_from((None, "1e-5", "1e-9", "0")),
    }
)
#: A step of a history: its kind, a number that selects a release, and mechanisms.
KINDS = ("import", "import", "submit", "reserve", "reserve", "void", "commit", "relabel", "wait")
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 30), BODIES, words())
#: Several policies one after the other, each with steps and questions.
HISTORIES = st.lists(
    st.tuples(
        policies(),
        st.lists(STEPS, min_size=5, max_size=9),
        st.lists(QUESTIONS, min_size=4, max_size=8),
    ),
    min_size=1,
    max_size=3,
)


class History:
    """A ledger, and the naive list of its releases. The code decides, and the list follows."""

    def __init__(self) -> None:
        self.now = START
        self.point = DecisionPoint(MemoryStore(), lambda: self.now)
        self.model = naive.Model(implied_rules=implied_rules)
        self.days: dict[str, date] = {}

    def apply(self, policy: dict[str, Any]) -> None:
        """Activate a policy, and accept its conflicts."""
        compiled = model_policy(policy)
        names = [conflict.name for conflict in self.point.conflicts(compiled)]
        self.point.apply(compiled, accept=names)
        self.model.policy = policy

    def step(self, kind: str, number: int, mechanisms: list[Any], labels: dict[str, Any]) -> None:
        """Do one step; a step that the code refuses changes nothing."""
        try:
            match kind:
                case "wait":
                    self.now += timedelta(hours=25)
                case "import" | "submit" | "reserve":
                    self._add(kind, mechanisms, AUTHORS[number % 2])
                case _:
                    self._change(kind, number, labels)
        except (OperationRejected, ReleaseRejected):
            return

    def _add(self, kind: str, mechanisms: list[Any], by: str) -> None:
        release = f"r{len(self.model.releases)}"
        body = {"release": release, "by": by, "mechanisms": mechanisms}
        if kind == "import":
            self.point.import_past(body)
            status = "imported"
        else:
            decision = (self.point.reserve if kind == "reserve" else self.point.submit)(body)
            charged = "reserved" if kind == "reserve" else "allowed"
            status = charged if decision.allowed else "denied"
        meaning = recorded_release.complete(self.model.policy, body)
        self.model.releases[release] = naive.PastRelease(status, body, body, None, meaning)
        self.days[release] = self.now.date()

    def _change(self, kind: str, number: int, labels: dict[str, Any]) -> None:
        """Void or commit a reservation, or correct the labels of any release."""
        statuses = ("reserved",) if kind != "relabel" else naive.COUNTED
        candidates = [r for r, past in self.model.releases.items() if past.status in statuses]
        if not candidates:
            return
        release = candidates[number % len(candidates)]
        past = self.model.releases[release]
        if kind == "void":
            self.point.void(release, because="never started")
            self.model.releases[release] = replace(past, status="voided")
            return
        body = deepcopy(dict(past.charged))
        if kind == "commit":
            noise = body["mechanisms"][0]["mechanism"]
            body["mechanisms"][0]["mechanism"] = lessened(noise, 2)
            self.point.commit(release, body)
            past = replace(past, status="committed")
        else:
            body["mechanisms"] = [{**fields, **labels} for fields in body["mechanisms"]]
            proposal = self.point.propose_relabelling(body, "a wrong label", "ana")
            self.point.approve(proposal.number, by="ben")
        meaning = recorded_release.complete(self.model.policy, body)
        self.model.releases[release] = replace(past, charged=body, meaning=meaning)

    def compare(self, wanted: dict[str, Any]) -> None:
        """Ask a question, and compare the answer with the naive sum."""
        scope, arguments, has_balance = self._parse(wanted)
        chosen = [r for r in self.model.releases if self._is_chosen(r, wanted)]
        spending = self.point.spent(**arguments)
        blocks = ledger_spending.spending_by_block(
            self.model, scope, chosen, has_balance=has_balance
        )
        compare_spending(spending, self._at(blocks, wanted), arguments.get("delta"))

    def _parse(self, wanted: dict[str, Any]) -> tuple[twin.Rule, dict[str, Any], bool]:
        """Return the scope for the model, the arguments, and whether it is that of a kept rule."""
        policy = self.model.policy
        units = list(policy["units"])
        unit = units[wanted["unit"] % len(units)]
        rules = [*self.model.rules("policies"), *self.model.rules("each-release")]
        arguments: dict[str, Any] = {"unit": unit, "by": wanted["by"], "limit": 10**6}
        if wanted["delta"] is not None:
            arguments["delta"] = wanted["delta"]
        if wanted["days"] is not None:
            arguments["since"] = date(2026, 1, 1 + wanted["days"])
        if wanted["country"] and "country" in policy["schema"]["partitions"]:
            arguments["at"] = {"country": wanted["country"]}
        if wanted["rule"] is None or not rules:
            when = wanted["scope"]
            if when and "country" in when and "country" not in policy["schema"]["attributes"]:
                when = None
            arguments["when"] = when
            scope = twin.Rule("question", unit, (when or "always",), {}, False)
            return scope, arguments, False
        named = rules[wanted["rule"] % len(rules)]
        arguments |= {"rule": named.name, "unit": named.unit}
        kept: dict[Identity, Identity] = witnesses(model_policy(policy))
        identity = (named.name, named.unit, named.each_release)
        return named, arguments, kept[identity] == identity and not named.each_release

    def _is_chosen(self, release: str, wanted: dict[str, Any]) -> bool:
        authors = {wanted["by"]} if isinstance(wanted["by"], str) else wanted["by"]
        by = self.model.releases[release].charged.get("by", "")
        days = wanted["days"]
        since = None if days is None else date(2026, 1, 1 + days)
        return (authors is None or by in authors) and (since is None or self.days[release] >= since)

    def _at(self, blocks: list[BlockSpending], wanted: dict[str, Any]) -> list[BlockSpending]:
        """Return the blocks of the stated country; all blocks if it does not split the scope."""
        country = wanted["country"]
        if not country or "country" not in self.model.policy["schema"]["partitions"]:
            return blocks
        return [
            block
            for block in blocks
            if any(b.values.get("country", country) == country for b in block.blocks)
        ]


def compare_spending(spending: Spending, blocks: list[BlockSpending], delta: str | None) -> None:
    """Compare an answer with the naive blocks: place, numbers and releases."""
    at = spending.delta
    assert delta is None or at == Fraction(delta)
    epsilons = [block.epsilon(at) for block in blocks]
    answer = math.inf if spending.epsilon is None else spending.epsilon
    assert_close(answer, max(epsilons))
    places = [
        block
        for block in blocks
        if any(b.location == spending.location for b in block.blocks)
        or (not spending.location and len(blocks) == 1)
    ]
    assert places, f"{spending.location} is not a place of this scope"
    block = places[0]
    assert_close(answer, block.epsilon(at))
    for amount, key in ((spending.rho, "rho"), (_square(spending.mu), "mu")):
        assert_amount(amount, block.total(key))
    assert_amount(
        None if spending.cost.pure is None else float(spending.cost.pure), block.total("pure")
    )
    for order, bound in spending.cost.renyi:
        assert_amount(None if bound is None else float(bound), block.total(order))
    compare_releases(spending, block, at)
    if spending.exact is not None and spending.epsilon is not None:
        assert float(spending.exact) <= spending.epsilon * (1 + 1e-5)


def compare_releases(spending: Spending, block: BlockSpending, at: Fraction) -> None:
    """Compare the releases and the authors of an answer with the charges of a block."""
    listed = {share.name: share for share in spending.releases}
    expected = {charge.release for charge in block.charges}
    assert listed.keys() == expected and spending.release_count == len(expected)
    assert len(spending.releases) == len(expected)
    sizes = [math.inf if s.epsilon is None else s.epsilon for s in spending.releases]
    assert sizes == sorted(sizes, reverse=True)
    for release, share in listed.items():
        costs = [charge.cost for charge in block.charges if charge.release == release]
        own = math.inf if share.epsilon is None else share.epsilon
        assert_close(own, ledger_spending.epsilon(costs, at))
    assert sum(share.count for share in spending.authors) == len(expected)
    by_author = {share.by: share for share in spending.authors}
    for by, share in by_author.items():
        own_releases = {name for name, s in listed.items() if s.by == by}
        costs = [c.cost for c in block.charges if c.release in own_releases]
        own = math.inf if share.epsilon is None else share.epsilon
        assert_close(own, ledger_spending.epsilon(costs, at))


def assert_close(real: float, exact: float) -> None:
    """Compare two ε; the code allows for the errors of floats, and rounds to quanta."""
    assert real == exact or -1e-12 <= real - exact <= 1e-9 * max(1.0, exact), (real, exact)


def assert_amount(real: float | None, exact: Fraction | None) -> None:
    """Compare an amount, which is rounded up to quanta once for each mechanism."""
    if exact is None or exact >= 2**20 or real is None:
        assert real is None and (exact is None or exact >= 2**20), (real, exact)
    else:
        assert -1e-12 <= real - float(exact) <= 1e-9 * max(1.0, float(exact)), (real, exact)


def _square(mu: float | None) -> float | None:
    return None if mu is None else mu * mu


def run(examples: int) -> None:
    """Compare questions on random histories."""

    @settings(quick(examples))
    @seed(1)
    @given(history=HISTORIES)
    def compare_all(history: list[Any]) -> None:
        ledger = History()
        for policy, steps, questions in history:
            ledger.apply(policy)
            for kind, number, mechanisms, labels in steps:
                ledger.step(kind, number, mechanisms, labels)
            for wanted in questions:
                ledger.compare(wanted)

    compare_all()


def test_spending_equals_a_naive_sum() -> None:
    run(30)


# Canaries: each is an error that the comparison must detect.


def reservations_are_free(patch: pytest.MonkeyPatch) -> None:
    """Charge no open reservation."""
    real = selected_releases.select_releases

    def select(state: LedgerState, *rest: Any) -> Any:
        chosen = real(state, *rest)
        for release in state.open_reservations:
            chosen.counts[state.entries[release].charge_group] -= 1
        return chosen

    patch.setattr(computation, "select_releases", select)


def an_error_means_no_match(patch: pytest.MonkeyPatch) -> None:
    """Drop a mechanism on which a predicate fails."""

    def matches_surely(predicate: Any, value: Any) -> bool:
        try:
            return matches(predicate, value)
        except PredicateFailed:
            return False

    patch.setattr(scope_charges, "possibly_matches", matches_surely)


def unresolved_is_free(patch: pytest.MonkeyPatch) -> None:
    """Drop releases that the policy cannot resolve."""
    patch.setattr(scope_charges, "_append_unbounded", lambda columns, _: columns)


def every_partition_splits(patch: pytest.MonkeyPatch) -> None:
    """Compose in parallel over partitions that the scope reads, or that are not stable."""
    real = scope_granularity

    def split(policy: Any, unit: Any, predicates: Any) -> Any:
        return replace(
            real(policy, unit, predicates), partitions=frozenset(range(len(policy.partitions)))
        )

    patch.setattr(question, "scope_granularity", split)


def a_day_too_late(patch: pytest.MonkeyPatch) -> None:
    """Drop the releases of the first day."""
    real = question._parse_since

    def late(since: Any) -> int | None:
        day = real(since)
        return None if day is None else day + 1

    patch.setattr(question, "_parse_since", late)


def a_table_never_grows(patch: pytest.MonkeyPatch) -> None:
    """Keep the table of a shorter ledger with other groups."""
    patch.setattr(group_table.GroupTable, "fits", lambda self, enforced, groups: True)


CANARIES = (
    reservations_are_free,
    an_error_means_no_match,
    unresolved_is_free,
    every_partition_splits,
    a_day_too_late,
    a_table_never_grows,
)


@pytest.mark.parametrize("mistake", CANARIES, ids=lambda mistake: mistake.__name__)
def test_the_comparison_detects(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, DPolicyError, LookupError)):
        run(400)
