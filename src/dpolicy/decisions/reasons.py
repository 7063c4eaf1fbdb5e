"""Reasons of a decision: the exceeded rules, or the tightest rules of an allowed release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dpolicy.decisions.decide import RuleChecks, Verdict
from dpolicy.privacy.budget import budget_notion
from dpolicy.privacy.loss_arrays import add_saturating
from dpolicy.releases.decision import LOSS_DISTRIBUTION, Reason
from dpolicy.releases.regions import Point

#: Number of reasons of an allowed release. A denied release has one for each exceeded rule.
MAX_REASONS = 3

#: Returns the top spenders of a rule, by its number, the point where it is exceeded, and the
#: quantity that is exceeded there.
Spenders = Callable[[int, Point | None, str | None], tuple[str, ...]]


def reasons_for(verdict: Verdict, spenders: Spenders | None = None) -> tuple[Reason, ...]:
    """Return a reason for each exceeded rule, or for the tightest rules if none is exceeded.

    With `spenders`, a reason for an exceeded rule has its top spenders.
    """
    exceeded = [
        _build_reason(checks, position, spenders)
        for checks in verdict.checks
        for position in np.argsort(checks.rule_numbers).tolist()
        if not checks.holds[position]
    ]
    return tuple(exceeded) if exceeded else tuple(_tightest_reasons(verdict))


def _tightest_reasons(verdict: Verdict) -> Iterator[Reason]:
    ranked = [
        (share, position, checks)
        for checks in verdict.checks
        for share, position in rank_tightest(checks)
    ]
    for _, position, checks in sorted(ranked, key=lambda item: item[0])[:MAX_REASONS]:
        yield _build_reason(checks, position, None)


def remaining_shares(checks: RuleChecks) -> NDArray[np.float64]:
    """Return the share that a release leaves of each rule; −1 for an exceeded rule."""
    shares = checks.section.bounds_for(checks.rule_numbers).remaining_share(checks.after)
    for position, exact in checks.exact.items():
        shares[position] = exact.remaining_share
    return shares


def rank_tightest(checks: RuleChecks) -> list[tuple[float, int]]:
    """Return the remaining share and the position of the tightest rules of a section."""
    shares = remaining_shares(checks)
    tightest = np.lexsort((checks.rule_numbers, shares))[:MAX_REASONS].tolist()
    return [(float(shares[position]), position) for position in tightest]


def reason_with_room(checks: RuleChecks, position: int) -> Reason:
    """Return the reason for a rule that is not exceeded."""
    return _build_reason(checks, position, None)


def _build_reason(checks: RuleChecks, position: int, spenders: Spenders | None) -> Reason:
    number = int(checks.rule_numbers[position])
    rule = checks.section.describe_rule(number)
    balance, cost = checks.spent[position], checks.cost[position]
    exact = checks.exact.get(position)
    point: Point | None = None
    location: Mapping[str, str | int] = {}
    cells = checks.tightest_cells.get(position)
    if cells is not None:
        point, balance = cells.first_block
    if exact is not None:
        point, cost = exact.point or point, exact.cost
    if point:
        granularities = checks.section.granularities
        location = granularities.location_for_rule(point, number, checks.cutoff)
    after = add_saturating(balance, cost)
    rows = np.stack([balance, cost, after])
    binding = checks.section.binding_quantity(number, after)
    displayed = checks.section.formatter_for(number).format_all(rows)
    top_spenders: tuple[str, ...] = ()
    if spenders is not None and not rule["each_release"]:
        top_spenders = spenders(number, point, binding)
    if exact is not None:
        displayed[1:] = [exact.display(loss) for loss in displayed[1:]]
        rule = {**rule, "leaks": {"limit": exact.delta_limit}, "method": LOSS_DISTRIBUTION}
        binding = budget_notion(exact.budget)
    return Reason(
        **rule,
        spent=displayed[0],
        cost=displayed[1],
        after=displayed[2],
        holds=bool(checks.holds[position]),
        spenders=top_spenders,
        location=location,
        binding=binding,
    )
