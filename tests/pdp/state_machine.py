"""State machine that runs the same steps on the decision point and on the naive model.

It compares decisions, exceeded rules with location and displayed losses, balances, conflicts and
statuses. The code reports kept rules only. So every exceeded rule that it reports must be exceeded
in the model, and for every exceeded rule of the model the code must report its witness. Displayed
losses are rounded up: they may be above the model's by rounding, never below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from math import isclose
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.pdp.strategies import (
    BODIES,
    COMMITS,
    CORRECTIONS,
    EDITS,
    lessened,
    moved_to,
    narrowed,
    policies,
    scaled,
    unstable,
    where_and_when,
    with_unit,
    words,
)
from tests.reference import model as naive
from tests.reference import rules as twin
from tests.reference.rules import Rule

from dpolicy.errors import OperationRejected, PolicyConflicts, ReleaseRejected
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.timestamps import RESERVATION_LIFETIME
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.policy.accounting.accounting_defaults import (
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: Name, unit, and whether it is a per-release rule.
Identity = tuple[str, str, bool]
#: The code reports no location if all blocks are equal; False selects the smallest block.
UNNAMED = True
START = datetime(2026, 1, 1, tzinfo=UTC)
WHICH = st.integers(0, 1)
NUMBERS = st.integers(0, 30)


@lru_cache(maxsize=500)
def compiled(text: str, defaults: AccountingDefaults = NEWEST_DEFAULTS) -> CompiledPolicy:
    """Compile a policy from JSON."""
    return compile_policy([Source("policy.json", text)], defaults)


def model_policy(policy: twin.PolicyDict) -> CompiledPolicy:
    """Compile a policy with the defaults of the model: its costs, thresholds and profile.

    The profile `anchored` stands for accounting defaults 3, whose default profile it is.
    """
    if not twin.is_newest(policy):
        return compiled(json.dumps(policy), SECOND_DEFAULTS)
    accounting = {k: v for k, v in policy["accounting"].items() if k != "profile"}
    return compiled(json.dumps({**policy, "accounting": accounting}), NEWEST_DEFAULTS)


@lru_cache(maxsize=500)
def witnesses(policy: CompiledPolicy) -> dict[Identity, Identity]:
    """Return the kept rule for every rule: itself, or its witness."""
    pairs = ((rule, witness or rule) for rule, witness in policy.all_rules)
    return {(a.name, a.unit, a.each_release): (b.name, b.unit, b.each_release) for a, b in pairs}


def implied_rules(policy: twin.PolicyDict) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return the cumulative rules that each kept rule implies, by name and unit."""
    return _implied_rules(model_policy(policy))


@lru_cache(maxsize=500)
def _implied_rules(policy: CompiledPolicy) -> dict[tuple[str, str], set[tuple[str, str]]]:
    implied: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for (name, unit, each_release), witness in witnesses(policy).items():
        if not each_release:
            implied.setdefault(witness[:2], set()).add((name, unit))
    return implied


def identity(rule: Rule) -> Identity:
    """Return the name of a rule of the model in the code."""
    return rule.name, rule.unit, rule.each_release


class Agreement(RuleBasedStateMachine):
    """One ledger with two decision points, compared with one model."""

    #: Creates an empty ledger; returns functions that open and delete it.
    place: Callable[[], tuple[Callable[[], LedgerStore], Callable[[], None]]]

    def __init__(self) -> None:
        super().__init__()
        self.open, self.clean = type(self).place()
        self.now = START
        self.model = naive.Model(split=True, implied_rules=implied_rules)
        self.stores = [self.open(), self.open()]
        self.points = [DecisionPoint(store, lambda: self.now) for store in self.stores]
        self.given: dict[str, Decision] = {}
        self.count = 0

    def teardown(self) -> None:
        try:
            assert audit_ledger(self.stores[0]).findings == ()
        finally:
            for store in self.stores:
                store.close()
            self.clean()

    # Steps

    @initialize(policy=policies(), several=st.lists(BODIES, min_size=4, max_size=6))
    def start(self, policy: dict[str, Any], several: list[list[Any]]) -> None:
        self.points[0].apply(model_policy(policy))
        self.model.policy = policy
        for number, mechanisms in enumerate(several):
            self._ask(number % 2, mechanisms, reserve=number % 3 > 0)

    @rule(at=WHICH, several=st.lists(BODIES, min_size=1, max_size=3))
    def submit(self, at: int, several: list[list[Any]]) -> None:
        for mechanisms in several:
            self._ask(at, mechanisms, reserve=False)

    @rule(at=WHICH, several=st.lists(BODIES, min_size=1, max_size=3))
    def reserve(self, at: int, several: list[list[Any]]) -> None:
        for mechanisms in several:
            self._ask(at, mechanisms, reserve=True)

    def _ask(self, at: int, mechanisms: list[Any], *, reserve: bool) -> None:
        self.count += 1
        self._decide(at, {"release": f"r{self.count}", "mechanisms": mechanisms}, reserve)

    @rule(at=WHICH, number=NUMBERS, other=st.booleans(), reserve=st.booleans())
    def ask_again(self, at: int, number: int, other: bool, reserve: bool) -> None:
        past = self._pick(number)
        if past is None:
            return
        body = deepcopy(dict(past.requested))
        if other:
            body["mechanisms"][0]["mechanism"] = lessened(body["mechanisms"][0]["mechanism"], 2)
        self._decide(at, body, reserve)

    @rule(at=WHICH, mechanisms=BODIES)
    def check(self, at: int, mechanisms: list[Any]) -> None:
        body = {"release": "dry-run", "mechanisms": mechanisms}
        before = list(self.stores[0].records_after(0))
        with self._same_refusal(lambda: self.model.verdict(body)) as expected:
            decision = self.points[at].check(body)
            self._compare(decision, expected.value, body)
        assert list(self.stores[0].records_after(0)) == before

    @rule(at=WHICH, number=NUMBERS, how=st.sampled_from(COMMITS), moved=where_and_when())
    def commit(self, at: int, number: int, how: str, moved: dict[str, Any]) -> None:
        past = self._pick(number, "reserved")
        if past is None:
            return
        used: dict[str, Any] | None = None
        if how != "whole":
            used = deepcopy(dict(past.requested))
            used["mechanisms"] = used["mechanisms"][: 1 if how == "dropped" else None]
            noise = lessened(used["mechanisms"][0]["mechanism"], 2 if how == "less" else 1)
            if how == "more" and "sigma" in noise:
                noise["sigma"] = noise["sigma"] / 2
            used["mechanisms"][0]["mechanism"] = noise
        if used is not None and how in ("narrower", "elsewhere"):
            first = used["mechanisms"][0]
            used["mechanisms"][0] = narrowed(first) if how == "narrower" else moved_to(first, moved)
        release = past.requested["release"]
        self.model.expire(self.now)
        with self._same_refusal(lambda: self.model.end(release, used)):
            self.points[at].commit(release, used)

    @rule(at=WHICH, number=NUMBERS)
    def void(self, at: int, number: int) -> None:
        past = self._pick(number)
        if past is None:
            return
        release = past.requested["release"]
        self.model.expire(self.now)
        with self._same_refusal(lambda: self.model.end(release, void=True)):
            self.points[at].void(release, because="never started")

    @rule(hours=st.sampled_from((1, 24, 25)))
    def wait(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    @rule(at=WHICH, mechanisms=BODIES, number=NUMBERS)
    def import_past(self, at: int, mechanisms: list[Any], number: int) -> None:
        self.count += 1
        body: Mapping[str, Any] = {"release": f"r{self.count}", "mechanisms": mechanisms}
        past = self._pick(number)
        if number % 5 == 0 and past is not None:
            body = past.requested
        self.model.expire(self.now)

        def by_model() -> None:
            if body["release"] not in self.model.releases:
                self.model.verdict(body)
            self.model.import_past(body)

        with self._same_refusal(by_model):
            self.points[at].import_past(body)

    @rule(
        at=WHICH,
        number=NUMBERS,
        labels=words(),
        how=st.sampled_from(CORRECTIONS),
        second=st.booleans(),
    )
    def relabel(self, at: int, number: int, labels: dict[str, Any], how: str, second: bool) -> None:
        past = self._pick(number)
        if past is None:
            return
        body = deepcopy(dict(past.charged))
        body["mechanisms"] = [_corrected(m, labels, how) for m in body["mechanisms"]]
        self.model.expire(self.now)

        def by_model() -> None:
            self.model.verdict(body)
            self.model.relabel(body, has_approval=second)

        with self._same_refusal(by_model):
            if second:
                proposal = self.points[at].propose_relabelling(body, "a wrong label", "ana")
                self.points[at].approve(proposal.number, by="ben")
            else:
                self.points[at].relabel(body, because="it was labelled wrongly")

    @rule(
        at=WHICH,
        policy=policies(),
        how=st.sampled_from(EDITS),
        accept=st.booleans(),
    )
    def apply(self, at: int, policy: dict[str, Any], how: str, accept: bool) -> None:
        changes: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "other": lambda _: policy,
            "tighter": lambda now: scaled(now, Fraction(1, 2)),
            "looser": lambda now: scaled(now, Fraction(2)),
            "unit": lambda now: with_unit(now, "user-month"),
            "unstable": unstable,
        }
        new = changes[how](dict(self.model.policy))
        made = model_policy(new)
        self._compare_conflicts(self.points[at].conflicts(made), new)
        self._apply(at, new, made, accept)

    @rule(at=WHICH)
    def restart(self, at: int) -> None:
        self.points[at].close()  # which keeps a snapshot
        self.stores[at] = self.open()
        self.points[at] = DecisionPoint(self.stores[at], lambda: self.now)

    # Comparisons

    @precondition(lambda self: bool(self.model.policy))
    @invariant()
    def same_balances(self) -> None:
        point = self.points[self.count % 2]
        entries = {release: entry.status for release, entry in point.entries.items()}
        assert entries == {release: past.status for release, past in self.model.releases.items()}
        for balance in point.budgets():
            it = self._same_balance(balance)
            assert balance.holds == (not self.model.overspent_blocks(it)), balance

    def _pick(self, number: int, status: str = "") -> naive.PastRelease | None:
        releases = [p for p in self.model.releases.values() if status in ("", p.status)]
        return releases[number % len(releases)] if releases else None

    def _same_refusal(self, by_model: Callable[[], Any]) -> _Refusal:
        return _Refusal(by_model)

    def _decide(self, at: int, body: dict[str, Any], reserve: bool) -> None:
        self.model.expire(self.now)
        until = self.now + RESERVATION_LIFETIME if reserve else None
        unchanged = replace(self.model, releases=dict(self.model.releases))
        with self._same_refusal(lambda: self.model.submit(body, until)) as expected:
            ask = self.points[at].reserve if reserve else self.points[at].submit
            decision = ask(deepcopy(body))
            if expected.refused:
                return
            if expected.value is None:
                assert decision == replace(self.given[body["release"]], replayed=True)
                return
            self.given[body["release"]] = decision
            assert not decision.replayed
            after, self.model = self.model, unchanged
            self._compare(decision, expected.value, body)
            self.model = after

    def _compare(self, decision: Decision, expected: naive.Verdict, body: Any) -> None:
        assert decision.allowed == expected.allowed, (decision, expected)
        assert decision.uncovered == expected.uncovered
        assert bool(decision.predicate_errors) == bool(expected.failed)
        named = {(r.rule, r.unit, r.each_release) for r in decision.reasons if not r.holds}
        self._same_rules(named, map(identity, expected.exceeded), witnesses(self._policy()))
        both = (*self.model.rules("policies"), *self.model.rules("each-release"))
        rules = {identity(r): r for r in both}
        mechanisms = naive.resolve_mechanisms(naive.text(self.model.policy), naive.text(body)) or []
        for reason in decision.reasons:
            it = rules[reason.rule, reason.unit, reason.each_release]
            if reason.method:
                self._compare_exact(reason, it, mechanisms)
                continue
            displayed_location = reason.as_json()["at"]
            statuses = self.model.costs_by_block(it, self.model.counted_mechanisms(it), mechanisms)
            if reason.holds:  # any block that it touches, and the numbers there
                status = self._find_status(displayed_location, statuses)
                assert status.cost, (it.name, it.unit, displayed_location)
            else:
                status = self.model.worst_block(it, self.model.exceeded_blocks(it, mechanisms))
                assert self._is_place(displayed_location, status, statuses), (
                    it.name,
                    displayed_location,
                    status.blocks[0].location,
                )
            self._same_numbers(reason.spent, it, status.spent)
            self._same_numbers(reason.cost, it, status.cost)
            self._same_numbers(reason.after, it, status.spent + status.cost)

    def _compare_exact(self, reason: Reason, it: Rule, mechanisms: naive.Placed) -> None:
        """Compare the certified ε of the block where it is largest, among those that need one."""
        above = self.model.blocks_above_thresholds(it, mechanisms)
        epsilons = [status.exact_epsilon(it) for status in above]
        largest = max(epsilon for epsilon in epsilons if epsilon is not None)
        assert None not in epsilons
        assert reason.after["epsilon"] == float(largest), (it.name, reason.after, largest)
        assert reason.holds == (largest <= it.budget["epsilon"])

    @staticmethod
    def _is_place(
        displayed_location: Any, status: naive.BlockStatus, statuses: list[naive.BlockStatus]
    ) -> bool:
        alike = UNNAMED and displayed_location == {} and len(statuses) == 1
        return alike or bool(displayed_location == status.blocks[0].location)

    @staticmethod
    def _find_status(
        displayed_location: Any, statuses: list[naive.BlockStatus]
    ) -> naive.BlockStatus:
        """Return the block at a location."""
        matches = [
            s for s in statuses if any(block.location == displayed_location for block in s.blocks)
        ]
        matches = statuses if UNNAMED and not displayed_location and len(statuses) == 1 else matches
        assert matches, f"{displayed_location} is not a location of this rule"
        return matches[0]

    def _same_balance(self, balance: RuleStatus) -> Rule:
        """Compare a rule at its most used block; of the exceeded blocks, if any."""
        rules = {identity(r): r for r in self.model.rules("policies")}
        it = rules[balance.rule.name, balance.rule.unit, False]
        statuses = self.model.costs_by_block(it, self.model.counted_mechanisms(it))
        status = self.model.most_used_block(it, self.model.overspent_blocks(it) or statuses)
        displayed_location = balance.as_json().get("at")
        assert displayed_location is None or self._is_place(displayed_location, status, statuses), (
            it.name,
            displayed_location,
            status.blocks[0],
        )
        self._same_numbers(balance.spent, it, status.spent)
        return it

    def _policy(self) -> CompiledPolicy:
        return model_policy(self.model.policy)

    @staticmethod
    def _same_rules(
        named: set[Identity], broken: Iterable[Identity], kept: dict[Identity, Identity]
    ) -> None:
        every = set(broken)
        assert named <= every, f"{named - every} hold in the model"
        missing = {kept[it] for it in every} - named
        assert not missing, f"{missing} are broken and not named"

    def _same_numbers(self, displayed: Any, it: Rule, costs: list[twin.Cost]) -> None:
        expected = naive.displayed_loss(it, costs, naive.grid(self.model.policy))
        assert expected.keys() == displayed.keys() - {"delta"} or "epsilon" not in displayed
        for key, exact in expected.items():
            real = displayed[key]
            if exact is None or real is None:
                assert real is exact, (it.name, key, real, exact)
                continue
            real = real * real if key == "mu" else real
            # A displayed ε of reserves is rounded up to steps of 1e-9, after its error is added.
            most = 3e-9 if it.reserved else 1e-9
            assert -1e-13 <= real - float(exact) <= most, (it.name, key, real, float(exact))
        delta = float(sum((d for _, d in costs), Fraction(0)))
        if "epsilon" in displayed:  # a δ of 1 or more gives no protection
            visible = min(delta, 1.0)
            assert isclose(displayed["delta"], visible, rel_tol=1e-6, abs_tol=1e-30), displayed

    def _compare_conflicts(self, found: Iterable[object], policy: dict[str, Any]) -> set[str]:
        conflicts = list(found)
        balances = [c for c in conflicts if isinstance(c, RuleStatus)]
        named = {(b.rule.name, b.rule.unit, False) for b in balances}
        kept = witnesses(model_policy(policy))
        self._same_rules(named, map(identity, self.model.conflicts(policy)), kept)
        redefined = {c.name for c in conflicts if isinstance(c, Redefinition)}
        assert redefined == self.model.redefinitions(policy)
        before, self.model = self.model, replace(self.model, policy=policy)
        for balance in balances:
            self._same_balance(balance)
        self.model = before
        return redefined | {name for name, _, _ in named}

    def _apply(self, at: int, new: dict[str, Any], made: CompiledPolicy, accept: bool) -> None:
        self.model.expire(self.now)
        names = {r.name for r in self.model.conflicts(new)} | self.model.redefinitions(new)
        reported = {conflict.name for conflict in self.points[at].conflicts(made)}
        assert reported <= names
        try:
            self.points[at].apply(made, accept=sorted(reported) if accept else ())
        except PolicyConflicts as error:
            assert not accept
            assert self._compare_conflicts(error.conflicts, new)
        else:
            assert accept or not names
            self.model.policy = new


def _corrected(fields: dict[str, Any], words: dict[str, Any], how: str) -> dict[str, Any]:
    """Return a mechanism with other labels, more attributes, a unit or (forbidden) other noise."""
    match how:
        case "more":
            return {**fields, "attributes": sorted({*fields["attributes"], *words["attributes"]})}
        case "unit":
            return {"unit": "user-month", **fields}
        case "noise":
            return {**fields, **words, "mechanism": lessened(fields["mechanism"], 2)}
    return {**fields, **words}


class _Refusal:
    """Context in which the code must refuse exactly the calls that the model refused."""

    def __init__(self, by_model: Callable[[], Any]) -> None:
        self.refused = False
        self.value: Any = None
        try:
            self.value = by_model()
        except naive.Rejected:
            self.refused = True

    def __enter__(self) -> _Refusal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: object) -> bool:
        if kind is None:
            assert not self.refused, "the model refuses it"
            return False
        return self.refused and isinstance(error, OperationRejected | ReleaseRejected)
