"""Cost reports of mechanisms for one unit, as `dpolicy cost` computes them."""

from __future__ import annotations

from fractions import Fraction

from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.cost_report import CostReport, report_costs
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

UNIT = PrivacyUnit("user", "user", None, NeighbouringRelation.CHANGE)
CONTEXT = GroupContext((UNIT,), False, None, no_covers, NEWEST_DEFAULTS.cost_rules)


def cost_report(kind: str, **parameters: Fraction) -> CostReport:
    """Return the report of a mechanism, as `dpolicy cost` computes it."""
    mechanism, problems = parse_mechanism({"kind": kind, **parameters})
    assert mechanism is not None, problems
    (report,) = report_costs(mechanism, 0, {}, UNIT.relation, CONTEXT, ())
    return report
