"""Total loss of a release for each unit of a policy and of its record, in every notion.

The totals are plain numbers for people and other tools; the ledger counts in quanta (10⁻¹²).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpolicy.decisions.recorded_names import is_same_unit
from dpolicy.privacy.cost_report import CostReport, report_costs
from dpolicy.privacy.loss_distribution.unit_runs import LossRuns, runs_by_unit
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.meaning import MechanismMeaning, ReleaseMeaning
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.rules.compiler import CompiledPolicy


def all_units(meaning: ReleaseMeaning, policy: CompiledPolicy) -> dict[str, PrivacyUnit]:
    """Return the units of a policy and of a release; a recorded definition goes first.

    The relation of a recorded unit is the one that the first mechanism states for it.
    """
    relations = {own.unit: own.relation for own in reversed(meaning.mechanisms)}
    recorded = {
        name: policy.units[name]
        if is_same_unit(unit, policy.units.get(name))
        else replace(unit, relation=relations.get(name, unit.relation))
        for name, unit in meaning.units.items()
    }
    return {**policy.units, **recorded}


def total_costs(
    release: Release, meaning: ReleaseMeaning, policy: CompiledPolicy
) -> dict[str, CostReport]:
    """Return the total cost of a release by unit, for all units of `all_units`."""
    units = all_units(meaning, policy)
    reports = [
        costs_by_unit(request, own, units, policy)
        for request, own in zip(release.mechanisms, meaning.mechanisms, strict=True)
    ]
    return {
        name: _sum_reports(unit_reports)
        for name, *unit_reports in zip(units, *reports, strict=True)
    }


def total_runs(
    release: Release, meaning: ReleaseMeaning, policy: CompiledPolicy
) -> dict[str, tuple[LossRuns, ...]]:
    """Return the loss runs of all mechanisms of a release, by unit of `all_units`."""
    units = all_units(meaning, policy)
    runs = [
        runs_by_unit(
            request.mechanism,
            units[own.unit],
            own.relation,
            _context(request, units, policy),
            request.restatements,
        )
        for request, own in zip(release.mechanisms, meaning.mechanisms, strict=True)
    ]
    return dict(zip(units, zip(*runs, strict=True), strict=True))


def _context(
    request: MechanismRequest, units: Mapping[str, PrivacyUnit], policy: CompiledPolicy
) -> GroupContext:
    return GroupContext(
        tuple(units.values()),
        request.additive,
        request.days_read,
        policy.vocabulary.covers,
        policy.accounting.defaults.cost_rules,
    )


def costs_by_unit(
    request: MechanismRequest,
    own: MechanismMeaning,
    units: Mapping[str, PrivacyUnit],
    policy: CompiledPolicy,
) -> list[CostReport]:
    """Return the cost of one mechanism for each of the units."""
    context = _context(request, units, policy)
    position = list(units).index(own.unit)
    return report_costs(
        request.mechanism, position, request.restatements, own.relation, context, ()
    )


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
