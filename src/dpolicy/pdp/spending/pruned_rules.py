"""Balances of pruned rules, which decisions do not need and no ledger state keeps.

A pruned rule is charged like a kept one. Its balance is computed on demand, by the same code, for a
policy in which only the tracked rules are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import OperationRejected
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.pdp.state.charge_groups import SpendingTotals
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.regions import Region
from dpolicy.rules.pruning import PruningResult
from dpolicy.rules.rule import Rule
from dpolicy.rules.rule_index import build_index

#: Largest number of pruned rules whose balances are computed together.
MAX_TRACKED_RULES = 100_000


def find_pruned_rules(enforced: EnforcedPolicy) -> list[int]:
    """Return the numbers of the pruned cumulative rules. Raise `OperationRejected` for too many."""
    numbers: list[int] = np.flatnonzero(~enforced.cumulative.compiled.pruning.kept).tolist()
    if len(numbers) > MAX_TRACKED_RULES:
        raise OperationRejected(
            f"{len(numbers):,} pruned rules are too many for one answer; "
            "help: ask about one of them, with `dpolicy spent --rule NAME`"
        )
    return numbers


def track_rules(enforced: EnforcedPolicy, numbers: Sequence[int]) -> EnforcedPolicy:
    """Return a policy that charges these cumulative rules, kept or pruned, and no others."""
    section = enforced.cumulative
    rules = section.compiled.rules
    kept = np.zeros(len(rules), np.bool_)
    kept[list(numbers)] = True
    pruning = PruningResult(kept, np.arange(len(rules), dtype=np.int32))
    compiled = replace(section.compiled, pruning=pruning, index=build_index(rules, pruning))
    return replace(enforced, cumulative=replace(section, compiled=compiled))


def track_state(state: LedgerState, totals: SpendingTotals) -> LedgerState:
    """Return the state in which the rules of `totals` have balances; it charges what they lack.

    Both must belong to the same policy text. Read the result only while this state stays.
    """
    state.totals.share_resolutions(totals)
    return state.with_totals(totals)


def pruned_rule_statuses(
    state: LedgerState,
    tracked: LedgerState,
    within: Region | None = None,
    rule_filter: Callable[[Rule], bool] | None = None,
    max_with_spenders: int | None = None,
) -> list[RuleStatus]:
    """Return the status of the rules that `tracked` has, each with the kept rule that implies it.

    `state` is the state of the active policy. The other arguments are those of `rule_statuses`.
    """
    if state.policy is None:
        return []
    implied_by = state.policy.cumulative.implied_by
    statuses = rule_statuses(tracked, within, rule_filter, max_with_spenders)
    return [replace(status, implied_by=implied_by(status.rule)) for status in statuses]
