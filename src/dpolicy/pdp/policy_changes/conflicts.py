"""Conflicts of a policy with recorded releases (theory 8).

A conflict is a rule that recorded releases already exceed, or a name that they used with another
definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpolicy.pdp.policy_changes.redefinitions import find_redefinitions
from dpolicy.pdp.policy_changes.sufficient_budget import (
    is_smallest,
    searched_certificates,
    smallest_sufficient_budget,
)
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.pdp.state.charge_groups import Pause, never_pause
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy

PolicyConflict = Redefinition | RuleStatus


def find_all_conflicts(state: LedgerState, candidate: CompiledPolicy) -> list[PolicyConflict]:
    """Return the redefined names of a candidate policy, then the rules that are exceeded."""
    exceeded = find_smallest_exceeded(state, state.with_policy(candidate))
    return [*find_redefinitions(state, candidate), *exceeded]


def find_smallest_exceeded(
    state: LedgerState, under: LedgerState, pause: Pause = never_pause
) -> list[RuleStatus]:
    """Return the exceeded rules of `under`, which is the state under a candidate policy.

    They have the certificates with which the smallest sufficient budget can be searched.
    """
    exceeded, candidate = find_exceeded_rules(under), under.policy
    if candidate is None or all(map(is_smallest, exceeded)):
        return exceeded
    more = searched_certificates(candidate.accounting)
    return find_exceeded_rules(state.with_policy(candidate, more, pause))


def find_exceeded_rules(state: LedgerState) -> list[RuleStatus]:
    """Return the kept rules of the active policy that recorded releases exceed."""
    return rule_statuses(state, only_exceeded=True)


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
