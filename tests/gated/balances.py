"""Balances and statuses of a ledger after a gated run."""

from __future__ import annotations

from dpolicy.pdp.decision_point import DecisionPoint


def balance(point: DecisionPoint, rule: str = "users", notion: str = "epsilon") -> float:
    """Return the loss that is charged to a rule."""
    (status,) = [status for status in point.budgets() if status.rule.name == rule]
    amount = status.spent[notion]
    assert amount is not None
    return amount


def statuses(point: DecisionPoint) -> list[str]:
    """Return the status of every release, in the order of the ledger."""
    return [entry.status for entry in point.entries.values()]
