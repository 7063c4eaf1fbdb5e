"""Computation of spending: the place with the largest loss, who spent it, and the exact ε."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.pdp.spending.epsilon_ranking import EpsilonRanking
from dpolicy.pdp.spending.group_table import UNBOUNDED, GroupTable
from dpolicy.pdp.spending.places import places_for
from dpolicy.pdp.spending.question import SpendingQuestion
from dpolicy.pdp.spending.row_sums import sum_rows
from dpolicy.pdp.spending.scope_charges import ScopeCharges, charge_scope
from dpolicy.pdp.spending.selected_releases import (
    DayOfRequest,
    SelectedReleases,
    select_releases,
)
from dpolicy.pdp.spending.spending import Share, Spending
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.cost_report import CostReport, report_loss
from dpolicy.privacy.loss_arrays import row_to_loss
from dpolicy.privacy.loss_distribution.certified_epsilon import round_up
from dpolicy.privacy.loss_distribution.unit_runs import certify_counted_runs

#: Largest number of authors in an answer.
MAX_AUTHORS = 100


def compute_spending(
    state: LedgerState,
    table: GroupTable,
    question: SpendingQuestion,
    day_of_request: DayOfRequest,
    authors_beside: Mapping[int, str],
    limit: int,
) -> Spending:
    """Return what was spent, with at most `limit` releases. The table must fit the state."""
    enforced, groups = table.enforced, state.charge_groups
    unit = list(enforced.policy.units).index(question.unit)
    selected = select_releases(state, question, day_of_request, authors_beside)
    charges = charge_scope(table, groups, selected.counts, question.scope, unit)
    places = places_for(enforced, question.granularity, state.today)
    placed = places.find_largest(
        charges.sum_by_place(groups, places), question.within, table.certificates, question.delta
    )
    here = charges.at(placed.point, places)
    cost = report_loss(row_to_loss(placed.loss, table.certificates))
    listed = here
    if question.listed_author is not None:
        listed = here.released_by(question.listed_author, groups)
    return Spending(
        _describe_scope(question),
        question.unit,
        places.location(placed.point),
        question.delta,
        cost,
        enforced.policy.accounting.orders,
        _certify(here, unit, question.delta, cost),
        tuple(islice(_largest_releases(listed, selected, question, limit), limit)),
        int(selected.counts[np.unique(here.columns.groups)].sum()),
        _largest_authors(listed, selected, question),
        tuple(_notes(question, selected, enforced, here)),
        state.sequence,
    )


def _certify(here: ScopeCharges, unit: int, delta: Fraction, cost: CostReport) -> Fraction | None:
    """Return the ε of the composed loss distributions; None if there is none below `cost`.

    Some mechanisms have only a loose distribution, such as a group of units on a sample.
    """
    runs = ((here.table.loss_runs(number, unit), count) for number, count in here.count_by_cost())
    exact, epsilon = certify_counted_runs(runs, delta), cost.epsilon(delta)
    if exact is None or epsilon is None:
        return exact
    return exact if exact <= round_up(epsilon) else None


def _describe_scope(question: SpendingQuestion) -> dict[str, str | None]:
    rule = question.scope.rule
    return {"when": question.scope.when, "rule": None if rule is None else rule.name}


def _largest_releases(
    here: ScopeCharges, selected: SelectedReleases, question: SpendingQuestion, limit: int
) -> Iterator[Share]:
    """Yield the releases with the largest ε at δ; of equal ones, those of the older group first."""
    groups, rows = here.sum_by_group()
    ranking = EpsilonRanking(rows, here.table.certificates, question.delta)
    for position in ranking.largest(limit):
        group = int(groups[position])
        for release in selected.ids(group):
            by = selected.author(release, group)
            yield Share(release, by, 1, *ranking.report(position))


def _largest_authors(
    here: ScopeCharges, selected: SelectedReleases, question: SpendingQuestion
) -> tuple[Share, ...]:
    """Return the totals of the authors with the largest ε at δ; of equal ones, by name."""
    in_group = {n: selected.count_by_author(n) for n in set(here.columns.groups.tolist())}
    names = sorted({name for own in in_group.values() for name in own})
    place = {name: number for number, name in enumerate(names)}
    parts = [
        (row, count, place[name])
        for row, group in enumerate(here.columns.groups.tolist())
        for name, count in in_group[group].items()
    ]
    chosen, weights, targets = np.array(parts, np.int64).reshape(-1, 3).T
    rows = sum_rows(here.rows[chosen], weights, targets, len(names))
    counts = Counter[str]()
    for own in in_group.values():
        counts.update(own)
    ranking = EpsilonRanking(rows, here.table.certificates, question.delta)
    return tuple(
        Share("", names[position], counts[names[position]], *ranking.report(position))
        for position in ranking.largest(MAX_AUTHORS)
    )


def _notes(
    question: SpendingQuestion,
    selected: SelectedReleases,
    enforced: EnforcedPolicy,
    here: ScopeCharges,
) -> Iterator[str]:
    """Yield what a reader must know beside the numbers.

    No note suggests the name of an author: a reader may be an analyst who must not see others.
    """
    authors = {group.by for group in selected.state.charge_groups} | {*selected.authors.values()}
    for name in sorted((question.authors or frozenset()) - authors):
        yield f"no recorded release has the author `{name}`"
    tracked = {enforced.space.axes[number].name for number in question.granularity.partitions}
    tracked |= {"time"} if question.granularity.period else set()
    for name in sorted(question.asked_dimensions - tracked):
        yield f"`{name}` does not split this scope for this unit: the answer is for all values"
    unresolved = np.unique(here.columns.groups[here.columns.costs == UNBOUNDED])
    if len(unresolved):
        count = int(here.counts[unresolved].sum())
        yield f"the policy cannot resolve {count} of the releases: their loss has no bound"
