"""All requests of a run → the most that any strategy could have been worth, had it known them.

In some blocks of every rule the chosen requests of every span of rounds must fit into what a cohort
that joins with the first has unlocked in the last. That each fits at some certificate implies that
the shares that each takes of the budget at its own best certificate add up to no more than the
share that is unlocked. Blocks that are not looked at and certificates that do not agree only make
the bound larger; so does that requests may be chosen in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.carried_prices import budget_shares, largest_shares
from dpolicy.allocation.problem.candidates import Candidate, demands_by_rule
from dpolicy.allocation.simulation import Arrival, RoundSchedule, Simulation
from dpolicy.allocation.solving.highs import LinearModel
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.errors import OperationRejected
from dpolicy.rules.compiler import CompiledPolicy

#: Spans that are added to the programme at a time, times of adding, and what is no more of a gain.
_MORE, _TIMES, _ENOUGH = 400, 40, 2e-4
#: So far a choice in parts may break a span before it is added; sums of floats err by less.
_LENIENT, _MARGIN = 1e-3, 1 + 1e-7

HindsightArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Demand:
    """What some requests take of one rule in some blocks, requests × blocks."""

    who: NDArray[np.intp]
    taken: HindsightArray


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Spans of rounds, the last one within, and the share of the budget that each may take."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    most: HindsightArray


def hindsight_upper_bound(
    policy: CompiledPolicy,
    schedule: RoundSchedule,
    arrivals: Iterable[Arrival],
    rounds: range,
    blocks: int = 100,
) -> float:
    """The bound over a whole run in which every request is considered once."""
    if schedule.max_wait_rounds != 1:
        raise OperationRejected(
            "a bound over a run is known only where each request is considered once"
        )
    asking = sorted((a for a in arrivals if a.round in rounds), key=lambda a: a.round)
    simulation = Simulation(policy, STRATEGIES["first-come"], schedule)
    candidates = [simulation.candidate_for_round(arrival, arrival.round) for arrival in asking]
    worths = np.array([0.0 if c.refusal_reasons else c.utility for c in candidates])
    number = np.array([arrival.round - rounds.start for arrival in asking], np.intp)
    demands = _demands(simulation, candidates, blocks)
    return _bound(worths, number, demands, _spans(schedule, rounds))


def _demands(
    simulation: Simulation, candidates: Sequence[Candidate], blocks: int
) -> Mapping[int, _Demand]:
    """By rule: the blocks begin where some of the requests for it begin."""
    of, draw = simulation.of, Random(0)
    found = {}
    for rule, wanted in demands_by_rule(of.granularities, candidates).items():
        boxes = sorted(
            draw.sample(range(len(wanted.item_of_box)), min(blocks, len(wanted.item_of_box)))
        )
        taken = largest_shares(
            wanted, budget_shares(of, rule, wanted), wanted.low[:, boxes].T, simulation.cohorts
        )
        found[rule] = _Demand(np.unique(wanted.owner), taken)
    return found


def _spans(schedule: RoundSchedule, rounds: range) -> _Spans:
    """Every span in which one cohort is active, or the whole run if users do not rotate."""
    count = len(rounds)
    active = schedule.rotation.active if schedule.rotation else count
    share = schedule.unlocking.share if schedule.unlocking else lambda age: 1
    pairs = [(a, b) for a in range(count) for b in range(a, min(a + active, count))]
    return _Spans(
        np.array([a for a, _ in pairs], np.intp),
        np.array([b for _, b in pairs], np.intp),
        np.array([float(share(b - a + 1)) for a, b in pairs]),
    )


def _bound(
    worths: HindsightArray, number: NDArray[np.intp], demands: Mapping[int, _Demand], spans: _Spans
) -> float:
    """By linear programme; what is told is what its prices prove (bound.py)."""
    model = LinearModel(worths, worths > 0)
    x = (worths > 0).astype(np.float64)
    lines: list[HindsightArray] = []
    most: list[float] = []
    known: set[tuple[int, int, int]] = set()
    prices, value = np.empty(0), np.inf
    for _ in range(_TIMES):
        new = [key for key in _broken(x, number, demands, spans) if key not in known][:_MORE]
        if not new:
            break
        known.update(new)
        added = np.stack([_line(key, number, demands, spans, len(worths)) for key in new])
        at_most = [float(spans.most[span]) for _, _, span in new]
        model.add_constraints(added, np.array(at_most))
        lines, most = [*lines, *added], [*most, *at_most]
        answer, before = model.solve_relaxed(), value
        x, prices, value = answer.x, answer.prices, answer.bound
        if before - value <= _ENOUGH * value:
            break
    paid = prices @ np.stack(lines) if lines else np.zeros(len(worths))
    over = np.maximum(worths - paid, 0).sum()
    return float(prices @ np.array(most) + over) * _MARGIN


def _broken(
    x: HindsightArray, number: NDArray[np.intp], demands: Mapping[int, _Demand], spans: _Spans
) -> list[tuple[int, int, int]]:
    """Rule, block and span where a choice in parts takes too much: the worst span of each block."""
    found = []
    count = int(spans.last.max()) + 1
    for rule, demand in demands.items():
        by_round = np.zeros((count, demand.taken.shape[1]))
        np.add.at(by_round, number[demand.who], demand.taken * x[demand.who][:, None])
        sums = np.concatenate([np.zeros((1, by_round.shape[1])), np.cumsum(by_round, axis=0)])
        loads = (sums[spans.last + 1] - sums[spans.first]) / spans.most[:, None]
        worst = loads.argmax(axis=0)
        for block, span in enumerate(worst.tolist()):
            if loads[span, block] > 1 + _LENIENT:
                found.append((float(loads[span, block]), rule, block, span))
    return [(rule, block, span) for _, rule, block, span in sorted(found, reverse=True)]


def _line(
    key: tuple[int, int, int],
    number: NDArray[np.intp],
    demands: Mapping[int, _Demand],
    spans: _Spans,
    size: int,
) -> HindsightArray:
    """What each request takes of a block in a span."""
    rule, block, span = key
    demand, line = demands[rule], np.zeros(size)
    rounds = number[demand.who]
    inside = (spans.first[span] <= rounds) & (rounds <= spans.last[span])
    line[demand.who[inside]] = demand.taken[inside, block]
    return line
