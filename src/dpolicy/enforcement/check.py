"""A policy, balances and a release → which rules it matches and whether each still holds; pure.

Costs are summed over all mechanisms of a release that match a rule, since it is charged together
or not at all (theory 2.6). A rule for each release by itself is an ordinary rule whose balance is
always zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpolicy.enforcement.readout import Readout, read_off, readout
from dpolicy.enforcement.resolution import Resolved
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate
from dpolicy.privacy.filter import Gate, gate, holds
from dpolicy.privacy.loss import Certificates, Loss, add, zero
from dpolicy.releases.decision import Shown
from dpolicy.rules.compiler import CompiledPolicy, Section

#: What was spent on each kept rule of a section, by its number; what is missing is zero.
Balances = Mapping[int, Loss]


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """One rule that a release matches: what was spent, what it adds, and whether that fits."""

    of: Prepared
    number: int
    spent: Loss
    cost: Loss
    after: Loss
    holds: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """All rules that a release matches, what no rule covers, and what could not be evaluated."""

    checks: tuple[RuleCheck, ...]
    uncovered: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        """Whether every rule holds and nothing is left unbounded."""
        return not (self.uncovered or self.failed) and all(check.holds for check in self.checks)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A section laid out for decisions: by number of bound, and by number of budget."""

    section: Section
    gates: tuple[Gate, ...]
    readouts: tuple[Readout, ...]

    def gate_of(self, number: int) -> Gate:
        """What a rule's losses must stay within."""
        return self.gates[int(self.section.rules.bound_numbers[number])]

    def shown(self, number: int, loss: Loss) -> Shown:
        """A loss beside a rule's budget, for people."""
        return self.readouts[int(self.section.rules.budget_numbers[number])](loss)


@lru_cache(maxsize=64)
def certificates_of(policy: CompiledPolicy) -> Certificates:
    """The certificates in which losses are kept under a policy."""
    used: set[Certificate] = {PURE, RHO, MU_SQUARED}
    orders = policy.policies.accounting.orders
    for section in policy.sections:
        rules = section.rules
        used |= {c for bound in rules.bounds for clause in bound.clauses for c, _ in clause}
        for budget, profile in zip(rules.budgets, rules.profiles, strict=True):
            used |= set(read_off(budget, profile, orders))
    return tuple(sorted(used))


@lru_cache(maxsize=64)
def prepared(policy: CompiledPolicy) -> tuple[Prepared, Prepared]:
    """Both sections, laid out once: over all releases, and for each release."""
    certificates, orders = certificates_of(policy), policy.policies.accounting.orders

    def lay_out(section: Section) -> Prepared:
        rules = section.rules
        return Prepared(
            section,
            tuple(gate(bound, certificates) for bound in rules.bounds),
            tuple(
                readout(budget, profile, orders, certificates)
                for budget, profile in zip(rules.budgets, rules.profiles, strict=True)
            ),
        )

    return lay_out(policy.cumulative), lay_out(policy.each_release)


def charges(section: Section, mechanisms: Sequence[Resolved]) -> dict[int, Loss]:
    """What a release costs each kept rule of a section. Raises `PredicateFailed`."""
    costs: dict[int, Loss] = {}
    for mechanism in mechanisms:
        for number in section.index.matching(mechanism.facts):
            cost = mechanism.costs[section.rules.bases[number // section.rules.width].unit]
            known = costs.get(number)
            costs[number] = cost if known is None else add(known, cost)
    return costs


def decide(policy: CompiledPolicy, balances: Balances, mechanisms: Sequence[Resolved]) -> Verdict:
    """Hold a release against every matching rule."""
    cumulative, each_release = prepared(policy)
    nothing = zero(certificates_of(policy))
    checks: list[RuleCheck] = []
    failed: list[str] = []
    for of, spent in ((each_release, {}), (cumulative, balances)):
        try:
            costs = charges(of.section, mechanisms)
        except PredicateFailed as error:
            failed.append(str(error))
            continue
        for number, cost in costs.items():
            before = spent.get(number, nothing)
            after = add(before, cost)
            checks.append(
                RuleCheck(of, number, before, cost, after, holds(after, of.gate_of(number)))
            )
    return Verdict(tuple(checks), _uncovered(policy, mechanisms), tuple(failed))


def _uncovered(policy: CompiledPolicy, mechanisms: Sequence[Resolved]) -> tuple[str, ...]:
    """Mechanisms that no rule over all releases bounds; an error elsewhere is told there."""
    if policy.policies.accounting.allow_uncovered:
        return ()
    names = []
    for mechanism in mechanisms:
        try:
            if not policy.cumulative.index.matching(mechanism.facts):
                names.append(mechanism.name)
        except PredicateFailed:
            continue
    return tuple(names)
