"""Conflicts of a policy with recorded releases (theory 8).

A conflict is a rule that recorded releases already exceed, or a name that they used with another
definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.policy_changes.redefinitions import find_redefinitions
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.cost_report import round_up_to_printed_float
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy

PolicyConflict = Redefinition | RuleStatus


def find_all_conflicts(state: LedgerState, candidate: CompiledPolicy) -> list[PolicyConflict]:
    """Return the redefined names of a candidate policy, then the rules that are exceeded."""
    return [
        *find_redefinitions(state, candidate),
        *find_exceeded_rules(state.with_policy(candidate)),
    ]


def find_exceeded_rules(state: LedgerState) -> list[RuleStatus]:
    """Return the kept rules of the active policy that recorded releases exceed."""
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


def conflicts_to_json(conflicts: Iterable[object]) -> dict[str, list[dict[str, Any]]]:
    """Return conflicts as JSON: exceeded rules and redefined names under separate keys."""
    conflicts = list(conflicts)
    return {
        "conflicts": [exceeded_rule_to_json(c) for c in conflicts if isinstance(c, RuleStatus)],
        "redefinitions": [c.as_json() for c in conflicts if isinstance(c, Redefinition)],
    }


def exceeded_rule_to_json(conflict: RuleStatus) -> dict[str, Any]:
    """Return a rule as JSON: its status, top spenders and the smallest sufficient budget."""
    return {
        **conflict.as_json(),
        "releases": list(conflict.spenders),
        "smallest-budget": smallest_sufficient_budget(conflict),
    }
