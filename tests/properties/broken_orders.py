"""Orders of factors that each omit one condition of Theorem A, for canaries."""

from __future__ import annotations

from dataclasses import replace

from dpolicy.policy.checker import CheckedPolicySet
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.rules.compiler import order_factors
from dpolicy.rules.pruning import FactorOrders
from dpolicy.rules.rule import RuleProduct
from dpolicy.rules.scope_order import ScopeComparer, preorder_from


def units_by_days(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """P5: order units by their number of days."""
    length = ["user-day", "user-week", "user-month", "user-year", "user", "household"]
    units = sorted({base.unit for base in rules.bases})
    order = preorder_from(len(units), lambda i, j: length.index(units[i]) <= length.index(units[j]))
    return replace(order_factors(rules, checked, comparison), units=order)


def relation_ignored(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """P6: let a larger unit imply a smaller one under every relation."""
    units = {
        name: replace(unit, relation=NeighbouringRelation.CHANGE)
        for name, unit in checked.vocabulary.units.items()
    }
    vocabulary = replace(checked.vocabulary, units=units)
    return order_factors(rules, replace(checked, vocabulary=vocabulary), comparison)


def collapse_ignored(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """P9: let a rule that is not merged imply a rule that is."""
    accounting = replace(checked.policies.accounting, collapse=None)
    policies = replace(checked.policies, accounting=accounting)
    return order_factors(rules, replace(checked, policies=policies), comparison)


def partitions_ignored(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """P8: let a rule that splits by a partition imply a rule that reads its attribute."""
    policies = replace(checked.policies, partitions={})
    return order_factors(rules, replace(checked, policies=policies), comparison)


def scopes_reversed(
    rules: RuleProduct, checked: CheckedPolicySet, comparison: ScopeComparer
) -> FactorOrders:
    """Use a reversed order of scopes without verification."""
    real = order_factors(rules, checked, comparison)
    count = len(real.scopes.classes)
    return replace(real, scopes=preorder_from(count, lambda i, j: real.scopes.leq(j, i)))
