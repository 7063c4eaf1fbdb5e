"""Total loss of a release for each unit of a policy, summed separately in every notion.

The totals are plain numbers for people and other tools; the ledger counts in quanta (10⁻¹²).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpolicy.privacy.cost_report import CostReport, report_costs
from dpolicy.privacy.mechanisms.registry import find_relation_problems
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.rules.compiler import CompiledPolicy


def total_costs(release: Release, policy: CompiledPolicy) -> dict[str, CostReport]:
    """Return the total cost by unit.

    Return an empty dict if the policy lacks a unit of the release, or if a mechanism is not private
    under its relation.
    """
    units = policy.checked_policy_set.vocabulary.units
    named_units = {
        name
        for request in release.mechanisms
        for name in (unit_name(request, policy), *request.restatements)
    }
    if not named_units <= units.keys():
        return {}
    if any(_has_relation_problem(request, policy) for request in release.mechanisms):
        return {}
    reports = [_costs_by_unit(request, policy) for request in release.mechanisms]
    return {
        name: _sum_reports(unit_reports)
        for name, *unit_reports in zip(units, *reports, strict=True)
    }


def unit_name(request: MechanismRequest, policy: CompiledPolicy) -> str:
    """Return the unit that a mechanism states; by default the only unit, or `user`."""
    units = policy.checked_policy_set.vocabulary.units
    return request.unit or (next(iter(units)) if len(units) == 1 else "user")


def _has_relation_problem(request: MechanismRequest, policy: CompiledPolicy) -> bool:
    unit = policy.checked_policy_set.vocabulary.units[unit_name(request, policy)]
    return any(find_relation_problems(request.kind, request.relation, unit.relation))


def _costs_by_unit(request: MechanismRequest, policy: CompiledPolicy) -> list[CostReport]:
    vocabulary = policy.checked_policy_set.vocabulary
    units, name = vocabulary.units, unit_name(request, policy)
    relation = request.relation or units[name].relation
    context = GroupContext(
        tuple(units.values()), request.additive, request.days_read, vocabulary.covers
    )
    position = list(units).index(name)
    return report_costs(request.mechanism, position, request.restatements, relation, context, ())


def _sum_reports(reports: Sequence[CostReport]) -> CostReport:
    curves = zip(*(report.renyi for report in reports), strict=True)
    return CostReport(
        _sum_bounds([report.pure for report in reports]),
        _sum_bounds([report.rho for report in reports]),
        _sum_bounds([report.mu_squared for report in reports]),
        tuple((points[0][0], _sum_bounds([value for _, value in points])) for points in curves),
        sum((report.delta for report in reports), Fraction(0)),
    )


def _sum_bounds(amounts: Sequence[Fraction | None]) -> Fraction | None:
    """Return the sum, or None if any amount has no bound."""
    bounded = [amount for amount in amounts if amount is not None]
    return sum(bounded, Fraction(0)) if len(bounded) == len(amounts) else None
