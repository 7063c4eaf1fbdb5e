"""Builder of the allocation problem of a round (docs/allocation.md).

For each rule, the bounds of the demanded boxes cut the swept axis into segments. A segment overlaps
steps of several step functions; a step is contested if the candidates of the segment do not all fit
together there. The Pareto-minimal vectors of remaining budget in contested steps are the capacities
of a constraint row. Whether a candidate fits alone does not depend on the other candidates, so one
pass finds all infeasible candidates; the rows are then built without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.allocation.problem.candidates import (
    Candidate,
    CandidatePositions,
    RuleDemand,
    demands_by_rule,
)
from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow
from dpolicy.allocation.problem.pareto import (
    drop_implied_rows,
    drop_implied_vectors,
    pareto_minimal,
)
from dpolicy.allocation.problem.step_functions import (
    AxisSweep,
    ItemNumbers,
    SpentByRule,
    StepFunction,
    count_by_kind,
    merge_sorted,
    split_into_boxes,
    sweep_axis,
)
from dpolicy.allocation.unlocking import ALL_UNLOCKED, UnlockedShares, scale_threshold
from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.errors import OperationRejected
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.privacy_filter import NEVER
from dpolicy.releases.regions import Box

#: Upper limit for sums of costs, so that they never overflow.
LARGEST_SUM = 2**62

#: Numbers compared at a time; limits the memory use.
COMPARED_AT_ONCE = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class _RuleTerms:
    """Demand on a rule and its thresholds, in the columns of the problem."""

    rule: int
    demand: RuleDemand
    columns: NDArray[np.intp]
    table: LossArray
    limits: tuple[int, ...]
    require_all: bool

    def scale_thresholds(self, share: Fraction) -> LossArray:
        """Return the thresholds at an unlocked share of the budget, rounded down."""
        return np.array([scale_threshold(limit, share) for limit in self.limits], np.int64)

    def remaining_share(self, remaining: LossArray) -> NDArray[np.float64]:
        """Return the remaining share of the whole budget, at the certificate with the most left."""
        whole = np.array(self.limits[:-1], np.float64)
        counts = (whole > 0) & (whole < INFINITE)
        shares = remaining[:, :-1][:, counts] / whole[counts]
        largest: NDArray[np.float64] = shares.max(axis=1, initial=0.0)
        return largest

    def are_within(self, amounts: LossArray, limits: LossArray) -> NDArray[np.bool_]:
        """Return whether amounts are within limits, along the last axis."""
        within = (amounts <= limits) | (limits >= INFINITE)
        certified = within[..., :-1].all(-1) if self.require_all else within[..., :-1].any(-1)
        held: NDArray[np.bool_] = certified & within[..., -1]
        return held


@dataclass(frozen=True, slots=True, eq=False)
class _ContestedSets:
    """Sets of items of a rule that do not fit together, and the budget that remains for each set.

    `member` is sets × items, and `blocks` holds one block per set. `set_index`, ascending, is the
    set of each vector in `remaining`.
    """

    terms: _RuleTerms
    member: NDArray[np.bool_]
    blocks: CandidatePositions
    set_index: ItemNumbers
    remaining: LossArray


def most_varied_axis(demands: dict[int, RuleDemand], unlocked: UnlockedShares, axes: int) -> int:
    """Return the axis with the most distinct lower bounds; the cohort axis is excluded."""

    def bounds(axis: int) -> int:
        return max((len(np.unique(a.low[axis])) for a in demands.values()), default=0)

    return max((axis for axis in range(axes) if axis != unlocked.axis), key=bounds)


def build_problem(
    section: EnforcedSection,
    balances: Balances,
    candidates: Sequence[Candidate],
    unlocked: UnlockedShares = ALL_UNLOCKED,
    carried_prices: CarriedPrices | None = None,
) -> AllocationProblem:
    """Build the problem of selecting candidates on top of recorded balances."""
    demands = demands_by_rule(section.granularities, candidates)
    axis = most_varied_axis(demands, unlocked, len(section.full_extent))
    spent = SpentByRule.from_balances(balances, axis, list(demands))
    problem = build_problem_on_steps(section, spent, candidates, demands, unlocked)
    if carried_prices is None:
        return problem
    costs = carried_prices.opportunity_costs(section, demands, len(candidates), unlocked.axis)
    return replace(problem, opportunity_costs=costs)


def build_problem_on_steps(
    section: EnforcedSection,
    spent: SpentByRule,
    candidates: Sequence[Candidate],
    demands: dict[int, RuleDemand],
    unlocked: UnlockedShares = ALL_UNLOCKED,
) -> AllocationProblem:
    """Build the problem on step functions, which consecutive rounds share."""
    fits = np.array([not candidate.rejection_reasons for candidate in candidates], dtype=bool)
    contested = [
        sets
        for terms in _rule_terms(section, demands, len(candidates))
        for sets in _find_contested_sets(terms, section, spent, unlocked)
    ]
    for sets in contested:
        fits[_infeasible_candidates(sets)] = False
    return AllocationProblem(
        tuple(candidate.id for candidate in candidates),
        np.array([candidate.utility for candidate in candidates], np.float64),
        drop_implied_rows(row for sets in contested for row in _constraint_rows(sets, fits)),
        fits,
    )


def _rule_terms(
    section: EnforcedSection, demands: dict[int, RuleDemand], count: int
) -> Iterator[_RuleTerms]:
    """Yield the terms of each rule, in the columns that limit a rule; the last is the δ-side.

    Costs above all limits are clipped just above them. Raise `OperationRejected` for limits with
    which sums could overflow. So every comparison is exact.
    """
    rules = [rule for rule, demand in demands.items() if len(demand.owner)]
    bounds = section.bounds_for(np.array(rules, np.intp))
    largest = LARGEST_SUM // (count + 1) - 1
    if ((bounds.maximum > largest) & (bounds.maximum < INFINITE)).any():
        raise OperationRejected(
            f"a budget is too large to add {count} candidates exactly; submit fewer candidates"
        )
    limits = bounds.maximum
    last = limits.shape[1] - 1
    matters = ((limits > NEVER) & (limits < INFINITE))[:, :last]
    columns = np.append(np.flatnonzero(np.any(matters, axis=0)), last)
    limits = limits[:, columns]
    highest = np.where(limits >= INFINITE, 0, limits).max(axis=0, initial=0)
    for rule, row, require_all in zip(rules, limits, bounds.require_all.tolist(), strict=True):
        demand = demands[rule]
        table = np.minimum(demand.table[:, columns], highest + 1)
        yield _RuleTerms(rule, demand, columns, table, tuple(row.tolist()), require_all)


def _find_contested_sets(
    terms: _RuleTerms, section: EnforcedSection, spent: SpentByRule, unlocked: UnlockedShares
) -> Iterator[_ContestedSets]:
    """Yield the contested sets of a rule, one sweep per distinct set of demanded boxes.

    Step functions under the same boxes share a sweep. Of several boxes with the same step function
    only the one with the smallest unlocked share matters.
    """
    granularity = section.granularities.for_rule(terms.rule)
    axis = unlocked.axis if unlocked.axis in granularity.partitions else None
    position = 0 if axis is None else axis - (axis > spent.axis)
    sweeps: dict[bytes, tuple[Box, ItemNumbers, dict[int, tuple[StepFunction, Fraction]]]] = {}
    for box, function, boxes in split_into_boxes(
        spent.for_rule(terms.rule), terms.demand, spent.axis
    ):
        if not len(boxes):
            continue
        share = Fraction(1) if axis is None else unlocked.smallest_share(box[position])
        _, _, histories = sweeps.setdefault(boxes.tobytes(), (box, boxes, {}))
        _, smallest = histories.get(id(function.steps), (function.steps, share))
        histories[id(function.steps)] = function.steps, min(share, smallest)
    for box, boxes, histories in sweeps.values():
        sweep = sweep_axis(terms.demand, boxes, spent.axis)
        blocks = _first_blocks(box, sweep.bounds[:-1], spent.axis)
        contested = _sweep_contested_sets(terms, sweep, blocks, list(histories.values()))
        if contested is not None:
            yield contested


def _first_blocks(box: Box, starts: CandidatePositions, axis: int) -> CandidatePositions:
    """Return the first block of each segment, segments × axes."""
    first = np.repeat(np.array([[low for low, _ in box]], np.int64), len(starts), axis=0)
    return np.insert(first, axis, starts, axis=1)


def _sweep_contested_sets(
    terms: _RuleTerms,
    sweep: AxisSweep,
    blocks: CandidatePositions,
    histories: Sequence[tuple[StepFunction, Fraction]],
) -> _ContestedSets | None:
    """Return the contested sets of a sweep over step functions; None if there are none.

    `blocks` holds one block per segment; `histories` the step functions with their unlocked shares.
    """
    total = count_by_kind(sweep.member, terms.demand) @ terms.table
    segments, vectors = [], []
    for steps, share in histories:
        segment, remaining = _find_contested_segments(
            terms, sweep, total, steps, terms.scale_thresholds(share)
        )
        segments.append(segment)
        vectors.append(remaining)
    set_index, remaining = np.concatenate(segments), np.vstack(vectors)
    if not len(set_index):
        return None
    used, set_index = np.unique(set_index, return_inverse=True)
    first, set_index, remaining = _merge_equal_sets(sweep.member[used], set_index, remaining)
    return _ContestedSets(
        terms, sweep.member[used[first]], blocks[used[first]], set_index, remaining
    )


def _find_contested_segments(
    terms: _RuleTerms, sweep: AxisSweep, total: LossArray, steps: StepFunction, limits: LossArray
) -> tuple[ItemNumbers, LossArray]:
    """Return the segment and the remaining budget of every contested step."""
    bounds = sweep.bounds
    first, last = np.searchsorted(steps.starts, [bounds[0], bounds[-1]])
    starts = merge_sorted(bounds[:-1], steps.starts[first:last])
    segment = np.searchsorted(bounds, starts, side="right") - 1
    cell = np.searchsorted(steps.starts, starts, side="right") - 1
    spent = steps.spent[terms.columns].take(cell, axis=1).T
    contested = np.flatnonzero(~terms.are_within(spent + total[segment], limits))
    remaining = np.maximum(limits - spent[contested], NEVER)
    remaining[:, limits >= INFINITE] = INFINITE
    return segment[contested], remaining


def _merge_equal_sets(
    member: NDArray[np.bool_], set_index: ItemNumbers, remaining: LossArray
) -> tuple[ItemNumbers, ItemNumbers, LossArray]:
    """Merge equal sets of items; keep the Pareto-minimal vectors of each.

    Return the first row of each distinct set, in order, the set of each vector, and the vectors.
    """
    packed = np.packbits(member, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], *pareto_minimal(rank[number[set_index]], remaining)


def _infeasible_candidates(contested: _ContestedSets) -> ItemNumbers:
    """Return the candidates that do not fit even alone."""
    terms, remaining = contested.terms, contested.remaining
    chunk = max(1, COMPARED_AT_ONCE // max(1, terms.table.size))
    chunks = [remaining[n : n + chunk] for n in range(0, len(remaining), chunk)]
    fit = np.concatenate([terms.are_within(terms.table, part[:, np.newaxis]) for part in chunks])
    starts = np.flatnonzero(np.diff(contested.set_index, prepend=-1))
    everywhere = np.logical_and.reduceat(fit, starts, axis=0)
    refused = contested.member & ~everywhere[:, terms.demand.kind]
    return terms.demand.owner[refused.any(axis=0)]


def _constraint_rows(contested: _ContestedSets, fits: NDArray[np.bool_]) -> Iterator[ConstraintRow]:
    """Yield the rows of the sets that are still contested among candidates that fit alone."""
    terms, demand = contested.terms, contested.terms.demand
    member = contested.member & fits[demand.owner]
    total = count_by_kind(member, demand) @ terms.table
    binding = ~terms.are_within(total[contested.set_index], contested.remaining)
    if not binding.any():
        return
    first, set_index, remaining = _merge_equal_sets(
        member, contested.set_index[binding], contested.remaining[binding]
    )
    member = member[first]
    set_index, remaining = drop_implied_vectors(member, set_index, remaining)
    if not terms.require_all:
        smallest = _smallest_costs(count_by_kind(member, demand), terms.table)
        remaining[:, :-1][smallest[set_index, :-1] > remaining[:, :-1]] = NEVER
        set_index, remaining = pareto_minimal(set_index, remaining)
    starts = np.flatnonzero(np.diff(set_index, prepend=-1))
    bounds = np.append(starts, len(set_index)).tolist()
    shares = (
        np.maximum.reduceat(terms.remaining_share(remaining), starts)
        if len(starts)
        else remaining[:0]
    )
    for number, inside in enumerate(member[set_index[starts]]):
        items = np.flatnonzero(inside)
        yield ConstraintRow(
            terms.rule,
            demand.owner[items],
            demand.kind[items],
            terms.table,
            remaining[bounds[number] : bounds[number + 1]],
            terms.require_all,
            contested.blocks[first[set_index[starts[number]]]],
            float(shares[number]),
        )


def _smallest_costs(counts: NDArray[np.int64], table: LossArray) -> LossArray:
    """Return the smallest cost in each set, by column.

    No candidate of a set can use a certificate with less remaining than that.
    """
    smallest = np.full((len(counts), table.shape[1]), INFINITE, np.int64)
    for kind, costs in enumerate(table):
        containing = np.flatnonzero(counts[:, kind])
        smallest[containing] = np.minimum(smallest[containing], costs)
    return smallest
