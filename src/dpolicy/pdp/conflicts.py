"""Conflicts: rules of a policy that recorded releases already exceed (theory 8)."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.cost_report import round_up_to_printed_float


def find_conflicts(state: LedgerState) -> list[RuleStatus]:
    """Return the kept rules that recorded releases exceed."""
    return [status for status in rule_statuses(state) if not status.holds]


def smallest_sufficient_budget(status: RuleStatus) -> dict[str, float | None]:
    """Return the smallest budget that recorded releases satisfy, in the notion of the rule's own.

    A value is None if no budget of this notion is enough: the loss is infinite, or it has a δ-side
    and the budget allows none.
    """
    budget, bound = status.rule.budget, status.rule.bound
    delta = status.loss.delta
    spent = {key: value for key, value in status.spent.items() if key != "delta"}
    if not delta or bound.delta is None or delta <= bound.delta:
        return spent
    if isinstance(budget, EpsilonDelta) and bound.delta:
        return {**spent, "delta": round_up_to_printed_float(delta * budget.delta / bound.delta)}
    return dict.fromkeys(spent)


def conflict_to_json(conflict: RuleStatus) -> dict[str, Any]:
    """Return a conflict as JSON: rule status, top spenders and the smallest sufficient budget."""
    return {
        **conflict.as_json(),
        "releases": list(conflict.spenders),
        "smallest-budget": smallest_sufficient_budget(conflict),
    }
