"""Conflicts: rules of a policy that recorded releases already exceed (theory 8)."""

from __future__ import annotations

from typing import Any

from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.cost_report import round_up_to_printed_float


def find_conflicts(state: LedgerState) -> list[RuleStatus]:
    """The kept rules that the past has already broken."""
    return [balance for balance in rule_statuses(state) if not balance.holds]


def smallest_sufficient_budget(balance: RuleStatus) -> dict[str, float | None]:
    """The least budget that the history satisfies, in the notion of the rule's own.

    None where no budget of this notion would do: an infinite loss, or leaks where none are allowed.
    """
    budget, bound = balance.rule.budget, balance.rule.bound
    leaks = balance.loss.delta
    spent = {key: value for key, value in balance.spent.items() if key != "delta"}
    if not leaks or bound.delta is None or leaks <= bound.delta:
        return spent
    if isinstance(budget, EpsilonDelta) and bound.delta:
        return {**spent, "delta": round_up_to_printed_float(leaks * budget.delta / bound.delta)}
    return dict.fromkeys(spent)


def conflict_to_json(conflict: RuleStatus) -> dict[str, Any]:
    """A conflict for programs: the rule, who is at fault, and the smallest budget that would do."""
    return {
        **conflict.as_json(),
        "releases": list(conflict.spenders),
        "smallest-budget": smallest_sufficient_budget(conflict),
    }
