"""Loss runs of a mechanism for every unit, from all statements about it (theory 0.1).

A unit that several statements reach has several runs; each of them is a valid bound, and all
mechanisms of a list use the one with the smallest ε alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpolicy.privacy.loss_distribution.certified_epsilon import MAX_PAIRS, certified_epsilon
from dpolicy.privacy.loss_distribution.loss_pairs import GaussianPair
from dpolicy.privacy.loss_distribution.loss_run import LossRun, loss_run
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, statements_for, steps_from
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

#: Alternative runs of one mechanism for one unit; empty without a loss distribution.
LossRuns = tuple[LossRun, ...]

#: Parts of one into which a μ² is rounded up before many are added.
_MU_PRECISION = 2**80

#: Number of steps from a statement to every unit; None: no path reaches the unit.
Steps = Sequence[int | None]


def runs_by_unit(
    mechanism: Mechanism,
    stated_unit: PrivacyUnit,
    relation: NeighbouringRelation,
    context: GroupContext,
    restatements: Mapping[str, Mechanism],
) -> tuple[LossRuns, ...]:
    """Return the runs of a mechanism stated for a unit, for every unit of the context."""
    units = context.units
    if stated_unit not in units:
        context = replace(context, units=(*units, stated_unit))
    position = context.units.index(stated_unit)
    alternatives: list[list[LossRun]] = [[] for _ in units]
    smaller = _smaller_units(context)
    for statement in statements_for(mechanism, position, relation, restatements, context):
        steps = steps_from(statement.context, statement.position, statement.relation)
        for runs, k in zip(alternatives, keep_order(steps, smaller), strict=False):
            run = None if k is None else loss_run(statement.mechanism, k, statement.relation)
            if run is not None and run not in runs:
                runs.append(run)
    return tuple(map(tuple, alternatives))


def _smaller_units(context: GroupContext) -> list[list[int]]:
    """Return the positions of the units that each unit implies in a policy of additive mechanisms.

    Other policies order units only under `change`, where steps never fall as a unit grows.
    """
    if not context.ordered_as_additive:
        return [[] for _ in context.units]
    context = replace(context, additive=True)
    return [
        [other for other, k in enumerate(steps_from(context, number, unit.relation)) if k == 1]
        for number, unit in enumerate(context.units)
    ]


def keep_order(steps: Steps, smaller: Sequence[Sequence[int]]) -> list[int | None]:
    """Return the steps to each unit, None if they are fewer than those to a smaller unit.

    A rule for a unit implies rules for smaller units (docs/theory/exact.md, statement 6). A sample
    of whole units is one step from its unit, and two steps from a part of it.
    """
    return [
        k if k is not None and all(_is_within(steps[other], k) for other in parts) else None
        for k, parts in zip(steps, smaller, strict=True)
    ]


def _is_within(steps: int | None, most: int) -> bool:
    return steps is not None and steps <= most


def certify_runs(mechanisms: Sequence[LossRuns], delta: Fraction) -> Fraction | None:
    """Return a certified ε of mechanisms together; None if one of them has no distribution."""
    if not all(mechanisms):
        return None
    return certified_epsilon([_best_run(runs, delta) for runs in mechanisms], delta)


def certify_counted_runs(
    mechanisms: Iterable[tuple[LossRuns, int]], delta: Fraction
) -> Fraction | None:
    """Return a certified ε of many mechanisms together, each as often as its count.

    None if one of them has no distribution, or if the list is too long for one. The μ² of Gaussians
    without sampling are rounded up before they are added, so that the sum stays a short number.
    """
    chosen: list[LossRun] = []
    gaussian, leak, choices = 0, Fraction(0), 0
    for runs, count in mechanisms:
        if not runs:
            return None
        choices += len(runs) > 1
        run = _best_run(runs, delta) if choices <= MAX_PAIRS else runs[0]
        if isinstance(run.pair, GaussianPair) and run.rate is None:
            gaussian += count * run.count * math.ceil(run.pair.mu_squared * _MU_PRECISION)
            leak += run.leak * count
        else:
            chosen.append(replace(run, count=run.count * count, leak=run.leak * count))
    if gaussian:
        pair = GaussianPair(Fraction(gaussian, _MU_PRECISION))
        chosen.append(LossRun(pair, None, 1, leak))
    return certified_epsilon(chosen, delta)


def _best_run(runs: LossRuns, delta: Fraction) -> LossRun:
    if len(runs) == 1:
        return runs[0]

    def epsilon_alone(run: LossRun) -> Fraction | float:
        epsilon = certified_epsilon([run], delta)
        return math.inf if epsilon is None else epsilon

    return min(runs, key=epsilon_alone)
