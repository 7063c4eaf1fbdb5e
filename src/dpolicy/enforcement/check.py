"""A policy, balances and a release → which rules it matches and whether each still holds; pure.

Costs are summed over all mechanisms of a release that match a rule, since it is charged together
or not at all (theory 2.6). A rule for each release by itself is an ordinary rule whose balance is
always zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.enforcement.balances import Balances, Charge
from dpolicy.enforcement.readout import Readout, read_off, readout
from dpolicy.enforcement.resolution import Resolved
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate
from dpolicy.privacy.filter import Gates, gates
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.rows import Rows, added, width
from dpolicy.releases.decision import Shown
from dpolicy.rules.compiler import CompiledPolicy, Section
from dpolicy.rules.index import Match


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A section laid out for decisions: by number of bound, of budget, and of base scope."""

    section: Section
    certificates: Certificates
    gates: Gates
    readouts: tuple[Readout, ...]
    unit_of_base: NDArray[np.intp]

    def gates_of(self, numbers: NDArray[np.intp]) -> Gates:
        """What the losses of rules must stay within."""
        return self.gates[self.section.rules.bound_numbers[numbers]]

    def units_of(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """The positions of the units of rules."""
        return self.unit_of_base[numbers // self.section.rules.width]

    def shown(self, number: int, row: Rows) -> Shown:
        """A loss beside a rule's budget, for people."""
        return self.readout_of(number)(row)

    def readout_of(self, number: int) -> Readout:
        """How the losses of a rule are told."""
        return self.readouts[int(self.section.rules.budget_numbers[number])]


@dataclass(frozen=True, slots=True, eq=False)
class Checks:
    """The rules of one section that a release matches: spent, cost, and whether each holds."""

    of: Prepared
    numbers: NDArray[np.intp]
    spent: Rows
    cost: Rows
    after: Rows
    holds: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Verdict:
    """All rules that a release matches, what no rule covers, and what could not be evaluated."""

    checks: tuple[Checks, ...]
    uncovered: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        """Whether every rule holds and nothing is left unbounded."""
        return not (self.uncovered or self.failed) and all(c.holds.all() for c in self.checks)


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
    units = list(policy.checked.vocabulary.units)

    def lay_out(section: Section) -> Prepared:
        rules = section.rules
        return Prepared(
            section,
            certificates,
            gates(rules.bounds, certificates),
            tuple(
                readout(budget, profile, orders, certificates)
                for budget, profile in zip(rules.budgets, rules.profiles, strict=True)
            ),
            np.array([units.index(base.unit) for base in rules.bases], dtype=np.intp),
        )

    return lay_out(policy.cumulative), lay_out(policy.each_release)


def decide(
    policy: CompiledPolicy, balances: Balances | None, mechanisms: Sequence[Resolved]
) -> Verdict:
    """Hold a release against every matching rule; without balances, as if it were the first."""
    cumulative, each_release = prepared(policy)
    checks: list[Checks] = []
    failed: list[str] = []
    uncovered: tuple[str, ...] = ()
    for of in (each_release, cumulative):
        matches, errors = _matches(of, mechanisms)
        failed += errors[:1]
        if of is cumulative and not policy.policies.accounting.allow_uncovered:
            uncovered = _uncovered(of, mechanisms, matches)
        if errors or not of.section.rules:
            continue
        cost = charge(of, mechanisms, [match for match in matches if match])
        lasting = balances if of is cumulative else None
        spent = lasting.spent(cost.numbers) if lasting else np.zeros_like(cost.rows)
        after = added(spent, cost.rows)
        held = of.gates_of(cost.numbers).hold(after)
        checks.append(Checks(of, cost.numbers, spent, cost.rows, after, held))
    return Verdict(tuple(checks), uncovered, tuple(failed))


def charge(of: Prepared, mechanisms: Sequence[Resolved], matches: Sequence[Match]) -> Charge:
    """What a release costs each kept rule of a section."""
    numbers = [of.section.index.numbers(match) for match in matches]
    rows = [m.costs[of.units_of(n)] for m, n in zip(mechanisms, numbers, strict=True)]
    if len(mechanisms) == 1:
        return Charge(numbers[0], rows[0])
    every = np.unique(np.concatenate(numbers))
    total = np.zeros((len(every), width(of.certificates)), dtype=np.int64)
    for some, cost in zip(numbers, rows, strict=True):
        at = np.searchsorted(every, some)
        total[at] = added(total[at], cost)
    return Charge(every, total)


def _matches(
    of: Prepared, mechanisms: Sequence[Resolved]
) -> tuple[list[Match | None], tuple[str, ...]]:
    """Where each mechanism lies, None where a predicate has no answer; and those errors."""
    found: list[Match | None] = []
    errors = []
    for mechanism in mechanisms:
        try:
            found.append(of.section.index.match(mechanism.facts))
        except PredicateFailed as error:
            found.append(None)
            errors.append(str(error))
    return found, tuple(errors)


def _uncovered(
    of: Prepared, mechanisms: Sequence[Resolved], matches: Sequence[Match | None]
) -> tuple[str, ...]:
    """Mechanisms that no rule over all releases bounds; an error is told elsewhere."""
    index = of.section.index
    pairs = zip(mechanisms, matches, strict=True)
    return tuple(m.name for m, match in pairs if match and not len(index.numbers(match)))
