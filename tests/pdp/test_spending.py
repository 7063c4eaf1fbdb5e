"""Spending in any scope equals a naive sum over the ledger, on random histories."""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from tests.pdp.state_machine import Agreement, Identity, model_policy, witnesses
from tests.pdp.strategies import BODIES, COUNTRIES
from tests.pdp.test_stateful import memory, quick
from tests.reference import ledger_spending
from tests.reference import rules as twin
from tests.reference.ledger_spending import BlockSpending

from dpolicy.pdp.spending.spending import Spending

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


class SpendingMachine(Agreement):
    """Histories of the state machine, with questions about spending."""

    def __init__(self) -> None:
        super().__init__()
        self.days: dict[str, date] = {}

    @invariant()
    def same_balances(self) -> None:
        """Note the day of new releases, instead of comparing balances."""
        for release in self.model.releases:
            self.days.setdefault(release, self.now.date())

    def _ask(self, at: int, mechanisms: list[Any], *, reserve: bool) -> None:
        self.count += 1
        by = AUTHORS[self.count % 2]
        body = {"release": f"r{self.count}", "by": by, "mechanisms": mechanisms}
        self._decide(at, body, reserve)
        self.same_balances()

    @rule(
        questions=st.lists(QUESTIONS, min_size=8, max_size=8),
        past=st.lists(BODIES, min_size=2, max_size=4),
    )
    def ask_what_was_spent(self, questions: list[dict[str, Any]], past: list[Any]) -> None:
        """Import a few releases, and ask."""
        for mechanisms in past:
            self.count += 1
            body = {"release": f"r{self.count}", "by": AUTHORS[0], "mechanisms": mechanisms}
            self.model.expire(self.now)
            with self._same_refusal(partial(self._import_to_model, body)):
                self.points[0].import_past(body)
        self.same_balances()
        for question in questions:
            self._compare_spending(question)

    def _import_to_model(self, body: dict[str, Any]) -> None:
        self.model.verdict(body)
        self.model.import_past(body)

    def _compare_spending(self, question: dict[str, Any]) -> None:
        scope, arguments, has_balance = self._parse(question)
        chosen = [r for r in self.model.releases if self._is_chosen(r, question)]
        spending = self.points[0].spent(**arguments)
        blocks = ledger_spending.spending_by_block(
            self.model, scope, chosen, has_balance=has_balance
        )
        compare_spending(spending, self._at(blocks, question), arguments.get("delta"))

    def _parse(self, question: dict[str, Any]) -> tuple[twin.Rule, dict[str, Any], bool]:
        """Return the scope for the model, the arguments, and whether it is that of a kept rule."""
        policy = self.model.policy
        units = list(policy["units"])
        unit = units[question["unit"] % len(units)]
        rules = [*self.model.rules("policies"), *self.model.rules("each-release")]
        arguments: dict[str, Any] = {"unit": unit, "by": question["by"], "limit": 10**6}
        if question["delta"] is not None:
            arguments["delta"] = question["delta"]
        if question["days"] is not None:
            arguments["since"] = date(2026, 1, 1 + question["days"])
        if question["country"] and "country" in policy["schema"]["partitions"]:
            arguments["at"] = {"country": question["country"]}
        if question["rule"] is None or not rules:
            when = question["scope"]
            if when and "country" in when and "country" not in policy["schema"]["attributes"]:
                when = None
            arguments["when"] = when
            scope = twin.Rule("question", unit, (when or "always",), {}, False)
            return scope, arguments, False
        named = rules[question["rule"] % len(rules)]
        arguments |= {"rule": named.name, "unit": named.unit}
        kept: dict[Identity, Identity] = witnesses(model_policy(policy))
        identity = (named.name, named.unit, named.each_release)
        return named, arguments, kept[identity] == identity and not named.each_release

    def _is_chosen(self, release: str, question: dict[str, Any]) -> bool:
        authors = {question["by"]} if isinstance(question["by"], str) else question["by"]
        by = self.model.releases[release].charged.get("by", "")
        days = question["days"]
        since = None if days is None else date(2026, 1, 1 + days)
        return (authors is None or by in authors) and (since is None or self.days[release] >= since)

    def _at(self, blocks: list[BlockSpending], question: dict[str, Any]) -> list[BlockSpending]:
        """Return the blocks of the stated country; all blocks if it does not split the scope."""
        country = question["country"]
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
    for order, amount in spending.cost.renyi:
        assert_amount(None if amount is None else float(amount), block.total(order))
    compare_releases(spending, block, at)


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
    machine = type("Machine", (SpendingMachine,), {"place": staticmethod(memory)})
    run_state_machine_as_test(machine, settings=quick(examples, steps=20))


def test_spending_equals_a_naive_sum() -> None:
    run(40)
