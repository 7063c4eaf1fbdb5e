"""A policy, balances and a release → which rules it matches and whether each still holds; pure.

Costs are summed over all mechanisms of a release that match a rule, since it is charged together
or not at all (theory 2.6). A rule for each release by itself is an ordinary rule whose balance is
always zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpolicy.enforcement.balances import Balances, Charge, pieces
from dpolicy.enforcement.places import Layout, layout_of
from dpolicy.enforcement.readout import Readout, read_off, readout
from dpolicy.enforcement.resolution import Resolved
from dpolicy.enforcement.segments import Segments
from dpolicy.errors import PredicateFailed
from dpolicy.privacy.certificates import PURE, Certificate
from dpolicy.privacy.filter import Gates, gates
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.rows import Rows, added, width
from dpolicy.releases.regions import Box, Point, Region
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
    layout: Layout

    def gates_of(self, numbers: NDArray[np.intp]) -> Gates:
        """What the losses of rules must stay within."""
        return self.gates[self.section.rules.bound_numbers[numbers]]

    def units_of(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """The positions of the units of rules."""
        return self.unit_of_base[numbers // self.section.rules.width]

    @property
    def space(self) -> Box:
        """The whole extent of each axis."""
        return self.layout.space.box

    def nothing(self) -> Balances:
        """The balances before the first release."""
        return Balances.nothing(self.layout, width(self.certificates))

    def readout_of(self, number: int) -> Readout:
        """How the losses of a rule are told."""
        return self.readouts[int(self.section.rules.budget_numbers[number])]


@dataclass(frozen=True, slots=True, eq=False)
class Checks:
    """The rules of one section that a release matches: spent, cost, and whether each holds.

    A rule that is not charged everywhere alike stands here with one of its tightest places; all of
    them are in `at`.
    """

    of: Prepared
    numbers: NDArray[np.intp]
    spent: Rows
    cost: Rows
    holds: NDArray[np.bool_]
    at: Mapping[int, Place]
    cutoff: int

    @property
    def after(self) -> Rows:
        """What is spent with the release."""
        return added(self.spent, self.cost)


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
    used: set[Certificate] = {PURE}
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
            layout_of(policy, rules),
        )

    return lay_out(policy.cumulative), lay_out(policy.each_release)


def decide(
    policy: CompiledPolicy,
    balances: Balances | None,
    mechanisms: Sequence[Resolved],
    today: int = 0,
) -> Verdict:
    """Hold a release against every matching rule; without balances, as if it were the first.

    `today` says which time steps are long ago, for policies that keep those together.
    """
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
        costs = charges(of, mechanisms, [match for match in matches if match], today)
        lasting = balances if of is cumulative else None
        checks.append(checked(of, lasting or of.nothing(), costs))
    return Verdict(tuple(checks), uncovered, tuple(failed))


def charges(
    of: Prepared, mechanisms: Sequence[Resolved], matches: Sequence[Match], today: int = 0
) -> tuple[Charge, ...]:
    """What a release costs each kept rule of a section: one charge a region."""
    cutoff = of.layout.cutoff(today)
    by_region: dict[Region | None, list[tuple[NDArray[np.intp], Rows]]] = {}
    for mechanism, match in zip(mechanisms, matches, strict=True):
        numbers = of.section.index.numbers(match)
        rows = mechanism.costs[of.units_of(numbers)]
        by_region.setdefault(mechanism.region, []).append((numbers, rows))
    return tuple(Charge(*_together(parts), region, cutoff) for region, parts in by_region.items())


def _together(parts: Sequence[tuple[NDArray[np.intp], Rows]]) -> tuple[NDArray[np.intp], Rows]:
    """Costs of several mechanisms → one row a rule."""
    if len(parts) == 1:
        return parts[0]
    every = np.unique(np.concatenate([numbers for numbers, _ in parts]))
    total = np.zeros((len(every), parts[0][1].shape[1]), dtype=np.int64)
    for numbers, rows in parts:
        at = np.searchsorted(every, numbers)
        total[at] = added(total[at], rows)
    return every, total


def checked(of: Prepared, balances: Balances, costs: Sequence[Charge]) -> Checks:
    """Hold charges against the rules: those charged everywhere alike at once, others by place."""
    apart = np.unique(np.concatenate([c.numbers[balances.apart(c)] for c in costs]))
    whole = [(c.numbers[k := ~np.isin(c.numbers, apart)], c.rows[k]) for c in costs]
    numbers, cost = _together(whole)
    spent = balances.spent(numbers)
    holds = of.gates_of(numbers).hold(added(spent, cost))
    if not len(apart):
        return Checks(of, numbers, spent, cost, holds, {}, costs[0].cutoff)
    placed = [_placed(of, balances, number, costs) for number in apart.tolist()]
    at = {len(numbers) + position: found.place for position, found in enumerate(placed)}
    return Checks(
        of,
        np.concatenate([numbers, apart]),
        np.vstack([spent, *(found.place.somewhere for found in placed)]),
        np.vstack([cost, *(found.cost for found in placed)]),
        np.concatenate([holds, [found.holds for found in placed]]),
        at,
        costs[0].cutoff,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Cells of a rule's segments, equally full, and the region that a release touches."""

    segments: Segments
    cells: NDArray[np.intp]
    region: Region

    @property
    def somewhere(self) -> Rows:
        """What was spent in one of the cells."""
        return self.segments.columns(self.cells[:1])[:, 0]

    @property
    def first(self) -> tuple[Point, Rows]:
        """The smallest block of it, and what was spent there."""
        point = self.segments.first_point(self.cells, self.region) or ()
        return point, self.segments.row_at(point)


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A rule at the place where a release leaves it least room."""

    holds: bool
    place: Place
    cost: Rows


def _placed(of: Prepared, balances: Balances, number: int, costs: Sequence[Charge]) -> _Placed:
    """A rule at its worst place: the largest loss where it breaks, or else where it is fullest."""
    segments, gate = balances.of(number), of.gates_of(np.array([number]))
    sizes = of.readout_of(number).sizes
    found = []
    for region, cost in pieces(of.space, _charged(of, number, costs)):
        cells, full = gate.tell_apart(segments.amounts, segments.touching(region), cost)
        holds = not len(cells)
        if holds:
            size = int(sizes(added(segments.columns(full[:1]).T, cost))[0])
        else:
            after = sizes(added(segments.columns(cells).T, cost))
            size = int(after.max())
            full = cells[after == size]
        found.append((holds, -size, _Placed(holds, Place(segments, full, region), cost)))
    worst = min(item[:2] for item in found)
    tied = [placed for holds, size, placed in found if (holds, size) == worst]
    return tied[0] if len(tied) == 1 else min(tied, key=lambda placed: placed.place.first[0])


def _charged(of: Prepared, number: int, costs: Sequence[Charge]) -> Iterator[tuple[Region, Rows]]:
    """What a release costs one rule, and in which of its blocks."""
    for charge in costs:
        position = int(np.searchsorted(charge.numbers, number))
        if position < len(charge.numbers) and charge.numbers[position] == number:
            yield of.layout.blocks(charge.region, number, charge.cutoff), charge.rows[position]


def nowhere_above(of: Prepared, some: Sequence[Charge], others: Sequence[Charge]) -> bool:
    """Whether charges are at most others for every rule in every block, and to no other rule."""
    for number in np.unique(np.concatenate([charge.numbers for charge in some])).tolist():
        limits = list(_charged(of, number, others))
        if not limits:
            return False
        most = Segments(of.space, np.zeros_like(limits[0][1]))
        for region, row in limits:
            most.add(region, row)
        for region, row in pieces(of.space, _charged(of, number, some)):
            if (row[:, np.newaxis] > most.columns(most.touching(region))).any():
                return False
    return True


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
