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

from dpolicy.allocation.candidates import Asked, Candidate, Places, asked_of
from dpolicy.allocation.lanes import Numbers, Steps, Sweep, Tracks, counted, leaves, swept, united
from dpolicy.allocation.market import Market
from dpolicy.allocation.pareto import merged, minimal, thinned
from dpolicy.allocation.problem import Problem, Row
from dpolicy.allocation.unlocking import ALL_UNLOCKED, Unlocked, scaled
from dpolicy.enforcement.balances import Balances
from dpolicy.enforcement.check import Prepared
from dpolicy.errors import Misused
from dpolicy.privacy.filter import NEVER
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.rows import Rows
from dpolicy.releases.regions import Box

#: Sums of costs stay below this, whatever the budgets.
LARGEST_SUM = 2**62

#: So many numbers are compared at a time, to bound the memory that takes.
COMPARED_AT_ONCE = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """What candidates ask of a rule and what it offers, in the columns of the problem."""

    rule: int
    asked: Asked
    columns: NDArray[np.intp]
    table: Rows
    limits: tuple[int, ...]
    every: bool

    def unlocked(self, share: Fraction) -> Rows:
        """The thresholds at a share of the budget."""
        return np.array([scaled(limit, share) for limit in self.limits], np.int64)

    def rest(self, left: Rows) -> NDArray[np.float64]:
        """The share of the whole budget that vectors leave, at the certificate with most."""
        whole = np.array(self.limits[:-1], np.float64)
        counts = (whole > 0) & (whole < INFINITE)
        shares = left[:, :-1][:, counts] / whole[counts]
        most: NDArray[np.float64] = shares.max(axis=1, initial=0.0)
        return most

    def hold(self, amounts: Rows, limits: Rows) -> NDArray[np.bool_]:
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
    places: Places
    of: Numbers
    left: Rows


def busiest_axis(asked: dict[int, Asked], unlocked: Unlocked, axes: int) -> int:
    """The axis along which candidates differ most, but for that of the cohorts."""

    def bounds(axis: int) -> int:
        return max((len(np.unique(a.low[axis])) for a in asked.values()), default=0)

    return max((axis for axis in range(axes) if axis != unlocked.axis), key=bounds)


def build(
    of: Prepared,
    balances: Balances,
    candidates: Sequence[Candidate],
    unlocked: Unlocked = ALL_UNLOCKED,
    market: Market | None = None,
) -> Problem:
    """The problem of choosing among candidates on top of what was spent."""
    asked = asked_of(of.layout, candidates)
    axis = busiest_axis(asked, unlocked, len(of.space))
    tracks = Tracks.of_balances(balances, axis, list(asked))
    problem = build_on(of, tracks, candidates, asked, unlocked)
    if market is None:
        return problem
    return replace(problem, later=market.later(of, asked, len(candidates), unlocked.axis))


def build_on(
    of: Prepared,
    tracks: Tracks,
    candidates: Sequence[Candidate],
    asked: dict[int, Asked],
    unlocked: Unlocked = ALL_UNLOCKED,
) -> Problem:
    """The same on top of lanes, for rounds that follow each other."""
    fits = np.array([not candidate.refused for candidate in candidates], dtype=bool)
    contests = [
        contest
        for terms in _all_terms(of, asked, len(candidates))
        for contest in _contests(terms, of, tracks, unlocked)
    ]
    for contest in contests:
        fits[_unfit(contest)] = False
    return Problem(
        tuple(candidate.id for candidate in candidates),
        np.array([candidate.utility for candidate in candidates], np.float64),
        merged(row for contest in contests for row in _rows(contest, fits)),
        fits,
    )


def _all_terms(of: Prepared, asked: dict[int, Asked], count: int) -> Iterator[_Terms]:
    """Rules in the columns that matter to one of them, last the δ-side.

    Costs above all limits are cut just above them; limits with which sums could overflow are
    refused. So every comparison is exact.
    """
    rules = [rule for rule, wanted in asked.items() if len(wanted.owner)]
    gates = of.gates_of(np.array(rules, np.intp))
    largest = LARGEST_SUM // (count + 1) - 1
    if ((gates.most > largest) & (gates.most < INFINITE)).any():
        raise Misused(f"a budget is too large to add up {count} candidates exactly; ask for fewer")
    limits = gates.most
    last = limits.shape[1] - 1
    matters = ((limits > NEVER) & (limits < INFINITE))[:, :last]
    columns = np.append(np.flatnonzero(np.any(matters, axis=0)), last)
    limits = limits[:, columns]
    most = np.where(limits >= INFINITE, 0, limits).max(axis=0, initial=0)
    for rule, row, every in zip(rules, limits, gates.every.tolist(), strict=True):
        wanted = asked[rule]
        table = np.minimum(wanted.table[:, columns], most + 1)
        yield _Terms(rule, wanted, columns, table, tuple(row.tolist()), every)


def _contests(
    terms: _Terms, of: Prepared, tracks: Tracks, unlocked: Unlocked
) -> Iterator[_Contest]:
    """The lanes that candidates select alike, together; of those with the same past, the one with
    the least unlocked.
    """
    frame = of.layout.frames[of.layout.frame_of[terms.rule]]
    axis = unlocked.axis if unlocked.axis in frame.partitions else None
    place = 0 if axis is None else axis - (axis > tracks.axis)
    alike: dict[bytes, tuple[Box, Numbers, dict[int, tuple[Steps, Fraction]]]] = {}
    for box, lane, boxes in leaves(tracks.of(terms.rule), terms.asked, tracks.axis):
        if not len(boxes):
            continue
        share = Fraction(1) if axis is None else unlocked.least(box[place])
        _, _, histories = alike.setdefault(boxes.tobytes(), (box, boxes, {}))
        known = histories.get(id(lane.steps))
        histories[id(lane.steps)] = lane.steps, min(share, known[1]) if known else share
    for box, boxes, histories in alike.values():
        sweep = swept(terms.asked, boxes, tracks.axis)
        places = _places(box, sweep.bounds[:-1], tracks.axis)
        found = _contest(terms, sweep, places, list(histories.values()))
        if found is not None:
            yield found


def _places(box: Box, starts: Places, axis: int) -> Places:
    """The first block of each segment of a lane, segments × axes."""
    first = np.repeat(np.array([[low for low, _ in box]], np.int64), len(starts), axis=0)
    return np.insert(first, axis, starts, axis=1)


def _contest(
    terms: _Terms, sweep: Sweep, places: Places, histories: Sequence[tuple[Steps, Fraction]]
) -> _Contest | None:
    total = counted(sweep.member, terms.asked) @ terms.table
    segments, lefts = [], []
    for steps, share in histories:
        segment, left = _crossed(terms, sweep, total, steps, terms.unlocked(share))
        segments.append(segment)
        lefts.append(left)
    of, left = np.concatenate(segments), np.vstack(lefts)
    if not len(of):
        return None
    used, of = np.unique(of, return_inverse=True)
    first, of, left = _grouped(sweep.member[used], of, left)
    return _Contest(terms, sweep.member[used[first]], places[used[first]], of, left)


def _crossed(
    terms: _Terms, sweep: Sweep, total: Rows, steps: Steps, limits: Rows
) -> tuple[Numbers, Rows]:
    """The segments that meet steps of a lane where not all fit, and what is left there."""
    bounds = sweep.bounds
    first, last = np.searchsorted(steps.starts, [bounds[0], bounds[-1]])
    at = united(bounds[:-1], steps.starts[first:last])
    segment = np.searchsorted(bounds, at, side="right") - 1
    cell = np.searchsorted(steps.starts, at, side="right") - 1
    spent = steps.spent[terms.columns].take(cell, axis=1).T
    contested = np.flatnonzero(~terms.hold(spent + total[segment], limits))
    left = np.maximum(limits - spent[contested], NEVER)
    left[:, limits >= INFINITE] = INFINITE
    return segment[contested], left


def _grouped(member: NDArray[np.bool_], of: Numbers, left: Rows) -> tuple[Numbers, Numbers, Rows]:
    """Equal sets of items as one: the first of each, in order, and Pareto-minimal vectors."""
    packed = np.packbits(member, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], *minimal(place[number[of]], left)


def _unfit(contest: _Contest) -> Numbers:
    """The candidates that do not fit even alone."""
    terms = contest.terms
    at_once = max(1, COMPARED_AT_ONCE // max(1, terms.table.size))
    parts = [contest.left[n : n + at_once] for n in range(0, len(contest.left), at_once)]
    fit = np.concatenate([terms.hold(terms.table, part[:, np.newaxis]) for part in parts])
    starts = np.flatnonzero(np.diff(contest.of, prepend=-1))
    everywhere = np.logical_and.reduceat(fit, starts, axis=0)
    refused = contest.member & ~everywhere[:, terms.asked.kind]
    return terms.asked.owner[refused.any(axis=0)]


def _rows(contest: _Contest, fits: NDArray[np.bool_]) -> Iterator[Row]:
    """The rows of a contest among those that fit alone, where they still do not all fit."""
    terms, asked = contest.terms, contest.terms.asked
    member = contest.member & fits[asked.owner]
    total = counted(member, asked) @ terms.table
    open_ = ~terms.hold(total[contest.of], contest.left)
    if not open_.any():
        return
    first, of, left = _grouped(member, contest.of[open_], contest.left[open_])
    member = member[first]
    of, left = thinned(member, of, left)
    if not terms.every:
        least = _least(counted(member, asked), terms.table)
        left[:, :-1][least[of, :-1] > left[:, :-1]] = NEVER
        of, left = minimal(of, left)
    used = np.flatnonzero(np.diff(of, prepend=-1))
    vectors = np.append(used, len(of)).tolist()
    rest = np.maximum.reduceat(terms.rest(left), used) if len(used) else left[:0]
    for number, inside in enumerate(member[of[used]]):
        items = np.flatnonzero(inside)
        own = left[vectors[number] : vectors[number + 1]]
        at = contest.places[first[of[used[number]]]]
        who, kinds = asked.owner[items], asked.kind[items]
        yield Row(terms.rule, who, kinds, terms.table, own, terms.every, at, float(rest[number]))


def _least(counts: NDArray[np.int64], table: Rows) -> Rows:
    """The smallest cost in each set, by column: a certificate with less left can serve nobody."""
    least = np.full((len(counts), table.shape[1]), INFINITE, np.int64)
    for kind, costs in enumerate(table):
        found = np.flatnonzero(counts[:, kind])
        least[found] = np.minimum(least[found], costs)
    return least
