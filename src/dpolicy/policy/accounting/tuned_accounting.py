"""Tuning of a policy: the shares of δ that its `tuned-for` section and its budgets determine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpolicy.policy.model import (
    Accounting,
    BasePolicy,
    BudgetStatement,
    CustomPolicy,
    Policy,
    base_policies,
)
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.shares.tuned_shares import (
    BudgetPoint,
    Mix,
    admitted_mixes,
    mix_costs,
    tuned_shares,
)
from dpolicy.privacy.thresholds import Profile, leaks_share
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.spans import Span


def tune_accounting(
    accounting: Accounting,
    policies: tuple[Policy, ...],
    span: Span,
    diagnostics: DiagnosticCollector,
) -> Accounting:
    """Return the accounting with tuned shares; report a `tuned-for` section without effect."""
    if accounting.tuned_for is None or diagnostics.errors:
        return accounting
    points = tuned_points(accounting, policies)
    if not points:
        message = "no cumulative (ε, δ) budget has the profile `anchored`"
        help_ = "add `profile: anchored` to `accounting`, or remove `tuned-for`"
        diagnostics.report("P049", message, span, help_)
        return accounting
    mix = tuple((typical.mechanism, typical.weight) for typical in accounting.tuned_for)
    shares = tuned_shares(
        mix, accounting.relation, points, accounting.orders, accounting.defaults.cost_rules
    )
    if shares is None:
        message = "no budget admits any part of these mechanisms"
        help_ = "state mechanisms that the budgets admit, or remove `tuned-for`"
        diagnostics.report("P049", message, span, help_)
    return replace(accounting, tuned=shares)


@dataclass(frozen=True, slots=True)
class TunedBudget:
    """How often an (ε, δ) budget admits a mix: with tuned shares, and with those of `anchored`."""

    epsilon: Fraction
    delta: Fraction
    tuned: Fraction
    anchored: Fraction


def compare_tuning(
    accounting: Accounting, policies: tuple[Policy, ...], mix: Mix
) -> tuple[DeltaShares | None, list[TunedBudget]]:
    """Return the shares that are tuned for a mix, and what every budget admits of it.

    Budgets of the profile `classic` count as if they had the profile `anchored`.
    """
    points = tuned_points(accounting, policies, (Profile.ANCHORED, Profile.CLASSIC))
    shares = tuned_shares(
        mix, accounting.relation, points, accounting.orders, accounting.defaults.cost_rules
    )
    if shares is None:
        return None, []
    costs = mix_costs(mix, accounting.relation, accounting.defaults.cost_rules)
    mass = 1 - leaks_share(
        Profile.ANCHORED, accounting.orders, accounting.leaks_for(Profile.ANCHORED)
    )
    default = anchored_shares(accounting.orders)
    return shares, [
        TunedBudget(*p, *(admitted_mixes(p, parts, costs, mass) for parts in (shares, default)))
        for p in points
    ]


def tuned_points(
    accounting: Accounting,
    policies: tuple[Policy, ...],
    profiles: Sequence[Profile] = (Profile.ANCHORED,),
) -> tuple[BudgetPoint, ...]:
    """Return the (ε, δ) budgets that base policies with one of the profiles state."""
    points = set()
    for policy in base_policies(policies):
        if (policy.profile or accounting.used_profile) not in profiles:
            continue
        for budget in _stated_budgets(policy):
            delta = accounting.delta if budget.delta is None else budget.delta
            if budget.epsilon and delta:
                points.add((budget.epsilon, delta))
    return tuple(sorted(points))


def _stated_budgets(policy: BasePolicy) -> Iterator[BudgetStatement]:
    if isinstance(policy, CustomPolicy):
        yield policy.budget
    else:
        yield from policy.budgets.values()
        yield from policy.exceptions.values()
