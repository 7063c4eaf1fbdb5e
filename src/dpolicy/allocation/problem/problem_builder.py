"""Candidates, what was spent and what is unlocked → the problem of a round (docs/allocation.md).

Per rule, the bounds of its candidates cut the swept axis into segments; a segment meets cells of
every lane, and only those cells matter in which not all candidates of the segment fit together.
What they leave, Pareto-minimal, is the capacity of a row. Whether a candidate fits alone does not
depend on others, so one pass finds all that are out; the rows without them are looked at again.
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
from dpolicy.privacy.filter import NEVER
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.releases.regions import Box

#: Sums of costs stay below this, whatever the budgets.
LARGEST_SUM = 2**62

#: So many numbers are compared at a time, to bound the memory that takes.
COMPARED_AT_ONCE = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """What candidates ask of a rule and what it offers, in the columns of the problem."""

    rule: int
    demand: RuleDemand
    columns: NDArray[np.intp]
    table: LossArray
    limits: tuple[int, ...]
    every: bool

    def unlocked_thresholds(self, share: Fraction) -> LossArray:
        """The thresholds at a share of the budget."""
        return np.array([scale_threshold(limit, share) for limit in self.limits], np.int64)

    def remaining_share(self, left: LossArray) -> NDArray[np.float64]:
        """The share of the whole budget that vectors leave, at the certificate with most."""
        whole = np.array(self.limits[:-1], np.float64)
        counts = (whole > 0) & (whole < INFINITE)
        shares = left[:, :-1][:, counts] / whole[counts]
        most: NDArray[np.float64] = shares.max(axis=1, initial=0.0)
        return most

    def hold(self, amounts: LossArray, limits: LossArray) -> NDArray[np.bool_]:
        """Whether amounts are within limits, along the last axis."""
        within = (amounts <= limits) | (limits >= INFINITE)
        certified = within[..., :-1].all(-1) if self.every else within[..., :-1].any(-1)
        held: NDArray[np.bool_] = certified & within[..., -1]
        return held


@dataclass(frozen=True, slots=True, eq=False)
class _Contest:
    """Where the candidates of a rule do not all fit: sets of items, and what is left for each.

    `member` is sets × items, and `places` has a block of each; `of` says to which set a vector of
    `left` belongs, rising.
    """

    terms: _Terms
    member: NDArray[np.bool_]
    places: CandidatePositions
    set_index: ItemNumbers
    left: LossArray


def most_varied_axis(demands: dict[int, RuleDemand], unlocked: UnlockedShares, axes: int) -> int:
    """The axis along which candidates differ most, but for that of the cohorts."""

    def bounds(axis: int) -> int:
        return max((len(np.unique(a.low[axis])) for a in demands.values()), default=0)

    return max((axis for axis in range(axes) if axis != unlocked.axis), key=bounds)


def build_problem(
    section: EnforcedSection,
    balances: Balances,
    candidates: Sequence[Candidate],
    unlocked: UnlockedShares = ALL_UNLOCKED,
    market: CarriedPrices | None = None,
) -> AllocationProblem:
    """The problem of choosing among candidates on top of what was spent."""
    asked = demands_by_rule(section.granularities, candidates)
    axis = most_varied_axis(asked, unlocked, len(section.full_extent))
    tracks = SpentByRule.from_balances(balances, axis, list(asked))
    problem = build_problem_on_steps(section, tracks, candidates, asked, unlocked)
    if market is None:
        return problem
    return replace(
        problem,
        opportunity_costs=market.opportunity_costs(section, asked, len(candidates), unlocked.axis),
    )


def build_problem_on_steps(
    section: EnforcedSection,
    tracks: SpentByRule,
    candidates: Sequence[Candidate],
    demands: dict[int, RuleDemand],
    unlocked: UnlockedShares = ALL_UNLOCKED,
) -> AllocationProblem:
    """The same on top of lanes, for rounds that follow each other."""
    fits = np.array([not candidate.refusal_reasons for candidate in candidates], dtype=bool)
    contests = [
        contest
        for terms in _all_terms(section, demands, len(candidates))
        for contest in _contests(terms, section, tracks, unlocked)
    ]
    for contest in contests:
        fits[_unfit(contest)] = False
    return AllocationProblem(
        tuple(candidate.id for candidate in candidates),
        np.array([candidate.utility for candidate in candidates], np.float64),
        drop_implied_rows(row for contest in contests for row in _rows(contest, fits)),
        fits,
    )


def _all_terms(
    section: EnforcedSection, demands: dict[int, RuleDemand], count: int
) -> Iterator[_Terms]:
    """Rules in the columns that matter to one of them, last the δ-side.

    Costs above all limits are cut just above them; limits with which sums could overflow are
    refused. So every comparison is exact.
    """
    rules = [rule for rule, wanted in demands.items() if len(wanted.owner)]
    gates = section.bounds_for(np.array(rules, np.intp))
    largest = LARGEST_SUM // (count + 1) - 1
    if ((gates.maximum > largest) & (gates.maximum < INFINITE)).any():
        raise OperationRejected(
            f"a budget is too large to add up {count} candidates exactly; ask for fewer"
        )
    limits = gates.maximum
    last = limits.shape[1] - 1
    matters = ((limits > NEVER) & (limits < INFINITE))[:, :last]
    columns = np.append(np.flatnonzero(np.any(matters, axis=0)), last)
    limits = limits[:, columns]
    most = np.where(limits >= INFINITE, 0, limits).max(axis=0, initial=0)
    for rule, row, every in zip(rules, limits, gates.require_all.tolist(), strict=True):
        wanted = demands[rule]
        table = np.minimum(wanted.table[:, columns], most + 1)
        yield _Terms(rule, wanted, columns, table, tuple(row.tolist()), every)


def _contests(
    terms: _Terms, section: EnforcedSection, tracks: SpentByRule, unlocked: UnlockedShares
) -> Iterator[_Contest]:
    """The lanes that candidates select alike, together; of those with the same past, the one with
    the least unlocked.
    """
    frame = section.granularities.frames[section.granularities.frame_of[terms.rule]]
    axis = unlocked.axis if unlocked.axis in frame.partitions else None
    place = 0 if axis is None else axis - (axis > tracks.axis)
    alike: dict[bytes, tuple[Box, ItemNumbers, dict[int, tuple[StepFunction, Fraction]]]] = {}
    for box, lane, boxes in split_into_boxes(
        tracks.for_rule(terms.rule), terms.demand, tracks.axis
    ):
        if not len(boxes):
            continue
        share = Fraction(1) if axis is None else unlocked.smallest_share(box[place])
        _, _, histories = alike.setdefault(boxes.tobytes(), (box, boxes, {}))
        known = histories.get(id(lane.steps))
        histories[id(lane.steps)] = lane.steps, min(share, known[1]) if known else share
    for box, boxes, histories in alike.values():
        sweep = sweep_axis(terms.demand, boxes, tracks.axis)
        places = _places(box, sweep.bounds[:-1], tracks.axis)
        found = _contest(terms, sweep, places, list(histories.values()))
        if found is not None:
            yield found


def _places(box: Box, starts: CandidatePositions, axis: int) -> CandidatePositions:
    """The first block of each segment of a lane, segments × axes."""
    first = np.repeat(np.array([[low for low, _ in box]], np.int64), len(starts), axis=0)
    return np.insert(first, axis, starts, axis=1)


def _contest(
    terms: _Terms,
    sweep: AxisSweep,
    places: CandidatePositions,
    histories: Sequence[tuple[StepFunction, Fraction]],
) -> _Contest | None:
    total = count_by_kind(sweep.member, terms.demand) @ terms.table
    segments, lefts = [], []
    for steps, share in histories:
        segment, left = _crossed(terms, sweep, total, steps, terms.unlocked_thresholds(share))
        segments.append(segment)
        lefts.append(left)
    of, left = np.concatenate(segments), np.vstack(lefts)
    if not len(of):
        return None
    used, of = np.unique(of, return_inverse=True)
    first, of, left = _grouped(sweep.member[used], of, left)
    return _Contest(terms, sweep.member[used[first]], places[used[first]], of, left)


def _crossed(
    terms: _Terms, sweep: AxisSweep, total: LossArray, steps: StepFunction, limits: LossArray
) -> tuple[ItemNumbers, LossArray]:
    """The segments that meet steps of a lane where not all fit, and what is left there."""
    bounds = sweep.bounds
    first, last = np.searchsorted(steps.starts, [bounds[0], bounds[-1]])
    at = merge_sorted(bounds[:-1], steps.starts[first:last])
    segment = np.searchsorted(bounds, at, side="right") - 1
    cell = np.searchsorted(steps.starts, at, side="right") - 1
    spent = steps.spent[terms.columns].take(cell, axis=1).T
    contested = np.flatnonzero(~terms.hold(spent + total[segment], limits))
    left = np.maximum(limits - spent[contested], NEVER)
    left[:, limits >= INFINITE] = INFINITE
    return segment[contested], left


def _grouped(
    member: NDArray[np.bool_], set_index: ItemNumbers, left: LossArray
) -> tuple[ItemNumbers, ItemNumbers, LossArray]:
    """Equal sets of items as one: the first of each, in order, and Pareto-minimal vectors."""
    packed = np.packbits(member, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], *pareto_minimal(place[number[set_index]], left)


def _unfit(contest: _Contest) -> ItemNumbers:
    """The candidates that do not fit even alone."""
    terms = contest.terms
    at_once = max(1, COMPARED_AT_ONCE // max(1, terms.table.size))
    parts = [contest.left[n : n + at_once] for n in range(0, len(contest.left), at_once)]
    fit = np.concatenate([terms.hold(terms.table, part[:, np.newaxis]) for part in parts])
    starts = np.flatnonzero(np.diff(contest.set_index, prepend=-1))
    everywhere = np.logical_and.reduceat(fit, starts, axis=0)
    refused = contest.member & ~everywhere[:, terms.demand.kind]
    return terms.demand.owner[refused.any(axis=0)]


def _rows(contest: _Contest, fits: NDArray[np.bool_]) -> Iterator[ConstraintRow]:
    """The rows of a contest among those that fit alone, where they still do not all fit."""
    terms, asked = contest.terms, contest.terms.demand
    member = contest.member & fits[asked.owner]
    total = count_by_kind(member, asked) @ terms.table
    open_ = ~terms.hold(total[contest.set_index], contest.left)
    if not open_.any():
        return
    first, of, left = _grouped(member, contest.set_index[open_], contest.left[open_])
    member = member[first]
    of, left = drop_implied_vectors(member, of, left)
    if not terms.every:
        least = _least(count_by_kind(member, asked), terms.table)
        left[:, :-1][least[of, :-1] > left[:, :-1]] = NEVER
        of, left = pareto_minimal(of, left)
    used = np.flatnonzero(np.diff(of, prepend=-1))
    vectors = np.append(used, len(of)).tolist()
    rest = np.maximum.reduceat(terms.remaining_share(left), used) if len(used) else left[:0]
    for number, inside in enumerate(member[of[used]]):
        items = np.flatnonzero(inside)
        own = left[vectors[number] : vectors[number + 1]]
        at = contest.places[first[of[used[number]]]]
        who, kinds = asked.owner[items], asked.kind[items]
        yield ConstraintRow(
            terms.rule, who, kinds, terms.table, own, terms.every, at, float(rest[number])
        )


def _least(counts: NDArray[np.int64], table: LossArray) -> LossArray:
    """The smallest cost in each set, by column: a certificate with less left can serve nobody."""
    least = np.full((len(counts), table.shape[1]), INFINITE, np.int64)
    for kind, costs in enumerate(table):
        found = np.flatnonzero(counts[:, kind])
        least[found] = np.minimum(least[found], costs)
    return least
