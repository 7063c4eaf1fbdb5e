"""Questions to the ledger of a decision point: balances of rules, and spending in any scope."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.pdp.spending.computation import compute_spending
from dpolicy.pdp.spending.group_table import GroupTable
from dpolicy.pdp.spending.pruned_rules import (
    find_pruned_rules,
    pruned_rule_statuses,
    track_rules,
    track_state,
)
from dpolicy.pdp.spending.question import SpendingQuestion, parse_question
from dpolicy.pdp.spending.release_dates import ReleaseDates
from dpolicy.pdp.spending.spending import Spending
from dpolicy.pdp.state.charge_groups import SpendingTotals
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.authors import require_number
from dpolicy.releases.python.budget_table import Budgets

#: Default for the number of releases that an answer lists.
LISTED_RELEASES = 1_000


class LedgerQuestions:
    """Base of `DecisionPoint`: questions that officers ask."""

    _journal: Journal
    _spending_table: GroupTable | None = None
    _release_dates: ReleaseDates | None = None
    _pruned_totals: tuple[EnforcedPolicy | None, SpendingTotals | None] = (None, None)

    def budgets(
        self, at: Mapping[str, str] | None = None, *, pruned: bool = False
    ) -> Budgets[RuleStatus]:
        """Return the status of every kept cumulative rule, at the block with the largest loss.

        With `at`, such as `{"country": "CH", "time": "2026-10"}`, look only at these blocks; with
        `pruned`, return the pruned rules too. The list prints as a table; `to_pandas` and
        `to_polars` return a frame.
        """
        with self._journal.read_with_balances() as state:
            region = state.enforced.space.parse_location(at) if at and state.enforced else None
            statuses = rule_statuses(state, region)
            if pruned:
                tracked = self.track_pruned_rules(state)
                statuses += pruned_rule_statuses(state, tracked, region)
                statuses.sort(key=lambda status: status.rule.number)
            return Budgets(statuses)

    def track_pruned_rules(self, state: LedgerState) -> LedgerState:
        """Return a state that is being read, with balances of the pruned rules instead."""
        enforced, (policy, totals) = state.enforced, self._pruned_totals
        if enforced is None:
            return state
        if totals is None or policy is not enforced:
            totals = SpendingTotals(track_rules(enforced, find_pruned_rules(enforced)))
        tracked = track_state(state, totals)
        self._pruned_totals = enforced, totals
        return tracked

    def spent(
        self,
        when: str | None = None,
        *,
        rule: str | None = None,
        unit: str | None = None,
        at: Mapping[str, str] | None = None,
        since: date | str | None = None,
        by: Sequence[str] | str | None = None,
        delta: Fraction | float | str | None = None,
        limit: int = LISTED_RELEASES,
    ) -> Spending:
        """Return what recorded releases spent in a scope, at the place with the largest ε at δ.

        The scope is a CEL expression, or the name of any rule; without one, all releases. With `at`
        look only at these places, with `since` only at releases from that day on, with `by` only at
        those of these authors. At most `limit` releases are listed, the largest first.
        """
        texts = (when, rule, unit, at, since, by, delta)
        return self.spent_as_seen_by(None, *texts, limit=limit)

    def spent_as_seen_by(
        self, author: str | None, *texts: Any, limit: int = LISTED_RELEASES
    ) -> Spending:
        """Return the answer of `spent` that lists only what an author released; None for all.

        `texts` are the arguments of `parse_question`.
        """
        require_number("limit", limit)
        with self._journal.read() as state:
            question = parse_question(active_policy(state), *texts)
            question = replace(question, listed_author=author)
            return self.answer_question(state, question, min(max(limit, 0), sys.maxsize))

    def answer_question(
        self, state: LedgerState, question: SpendingQuestion, limit: int = LISTED_RELEASES
    ) -> Spending:
        """Return the answer to a question under the active policy of a state that is being read."""
        enforced, table = active_policy(state), self._spending_table
        if table is None or not table.fits(enforced, state.charge_groups):
            table = GroupTable(enforced)
        self._spending_table = None  # an interrupted computation may leave a table half filled
        dates = self._release_dates or ReleaseDates(self._journal.store)
        is_unnamed = any(group.count and not group.by for group in state.charge_groups)
        if question.since is not None or is_unnamed:
            self._release_dates = None
            dates.update(state.sequence)
        answer = compute_spending(state, table, question, dates.day, dates.authors_beside, limit)
        self._spending_table, self._release_dates = table, dates
        return answer
