"""Allocation round on a ledger: select among competing releases and charge the selected ones.

The round is planned on a copy of the balances, without the write lock. Under the lock the plan is
used if the ledger has not changed; otherwise the round is planned again. Each selected release is
then decided like any other release, all in one commit. If one is denied, that is a bug, and nothing
is written. Releases that are not selected are not recorded; they can be submitted again. An id that
is already in the ledger keeps its recorded decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpolicy.allocation.batch_file import check_unique_ids
from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.allocation.problem.candidates import Candidate, make_candidate
from dpolicy.allocation.problem.knapsack import AllocationProblem, ConstraintRow, Solution
from dpolicy.allocation.problem.problem_builder import build_problem
from dpolicy.allocation.round_result import AllocationResult, BindingRule, RejectedCandidate
from dpolicy.allocation.shadow_prices import shadow_prices
from dpolicy.allocation.strategies import STRATEGIES, Strategy
from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import active_policy, ensure_not_pending, parse_request
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.authors import fill_author
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: Candidates, those of highest utility, that get counter-offers; each takes many decisions.
MAX_CANDIDATES_WITH_OFFERS = 100


@dataclass(frozen=True, slots=True, eq=False)
class RoundView:
    """Part of the ledger state that a round depends on, with a copy of the balances.

    `recorded_releases` have ids that are already in the ledger; `new_releases` compete.
    """

    sequence: int
    today: int
    enforced: EnforcedPolicy
    balances: Balances
    recorded_releases: tuple[Release, ...]
    new_releases: tuple[Release, ...]

    def is_current(self, state: LedgerState) -> bool:
        """Return whether the ledger still has the records and the date of this view."""
        return (self.sequence, self.today) == (state.sequence, state.today)


@dataclass(frozen=True, slots=True, eq=False)
class RoundPlan:
    """Result of a round before it is written.

    In the balances of `view` the selected releases are charged. `submitted` are the recorded
    releases, whose decisions are replayed, and the selected ones.
    """

    view: RoundView
    result: AllocationResult
    submitted: tuple[Release, ...]


@dataclass(slots=True, eq=False)
class _Planner:
    """Requests of a round, how to plan it, and the latest plan."""

    requests: Sequence[Release]
    strategy: Strategy
    carried_prices: CarriedPrices | None
    plan: RoundPlan

    def releases_to_submit(self, state: LedgerState) -> Sequence[Release]:
        """Return the releases of the plan; plan again first if the ledger has changed since."""
        if not self.plan.view.is_current(state):
            view = view_round(state, self.requests)
            self.plan = plan_round(view, self.strategy, self.carried_prices)
        return self.plan.submitted


def allocate(
    decision_point: DecisionPoint,
    releases: Sequence[Release | Body],
    strategy: Strategy | str = "efficient",
    by: str = "",
    *,
    dry_run: bool = False,
    carried_prices: CarriedPrices | None = None,
    expected_policy: ExpectedPolicy = ANY_POLICY,
) -> AllocationResult:
    """Select among releases and charge the selected ones in one commit.

    A dry run writes nothing. With prices of earlier rounds, the strategy `price` leaves budget to
    later rounds that are expected to pay more for it. `by` runs the round, and is the author of
    releases that state none. Raise `OperationRejected` for an unknown strategy, a repeated id, or a
    release that is pending approval.
    """
    solve = _find_strategy(strategy)
    requests = [fill_author(parse_request(release), by) for release in releases]
    check_unique_ids(requests)
    view = decision_point.read_state(lambda state: view_round(state, requests))
    planner = _Planner(requests, solve, carried_prices, plan_round(view, solve, carried_prices))
    decisions: tuple[Decision, ...] = ()
    if not dry_run:
        decisions = decision_point.submit_batch(
            planner.releases_to_submit, by, expected_policy=expected_policy
        )
    plan = planner.plan
    return replace(plan.result, not_selected=_add_counter_offers(plan), decisions=decisions)


def _find_strategy(strategy: Strategy | str) -> Strategy:
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        raise OperationRejected(
            f"unknown strategy `{strategy}`; available: {', '.join(STRATEGIES)}"
        )
    return STRATEGIES[strategy]


def view_round(state: LedgerState, requests: Sequence[Release]) -> RoundView:
    """Copy from the ledger state what a round depends on.

    Raise `OperationRejected` if there is no active policy or a request is pending approval.
    """
    enforced = active_policy(state)
    recorded = tuple(release for release in requests if release.id in state.entries)
    new = tuple(release for release in requests if release.id not in state.entries)
    for release in new:
        ensure_not_pending(state, release.id)
    return RoundView(state.sequence, state.today, enforced, state.balances.copy(), recorded, new)


def plan_round(
    view: RoundView, strategy: Strategy, carried_prices: CarriedPrices | None
) -> RoundPlan:
    """Select among the new releases of a view and charge the selected ones in its balances."""
    candidates = [_candidate(view, release) for release in view.new_releases]
    section = view.enforced.cumulative
    problem = build_problem(section, view.balances, candidates, carried_prices=carried_prices)
    solution = strategy(problem)
    not_selected = _list_rejected(view, candidates, problem, solution)
    selected = np.flatnonzero(solution.selected).tolist()
    for number in selected:
        for charge in candidates[number].charges:
            view.balances.add(charge, 1)
    releases = tuple(view.new_releases[number] for number in selected)
    result = AllocationResult(
        solution.utility(problem),
        solution.bound,
        solution.gap(problem),
        tuple(release.id for release in releases),
        tuple(release.id for release in view.recorded_releases),
        not_selected,
        shadow_prices(view.enforced.policy, problem, solution),
        carried_prices=carried_prices and carried_prices.with_round(problem, solution),
    )
    return RoundPlan(view, result, (*view.recorded_releases, *releases))


def _add_counter_offers(plan: RoundPlan) -> tuple[RejectedCandidate, ...]:
    """Return the rejected candidates; those of highest utility get counter-offers.

    A counter-offer fits beside the selected releases, which are charged in the view.
    """
    by_id = {release.id: release for release in plan.view.new_releases}
    rejected = plan.result.not_selected
    ranked = sorted(rejected, key=lambda candidate: -_utility(by_id[candidate.release]))
    with_offers = {candidate.release for candidate in ranked[:MAX_CANDIDATES_WITH_OFFERS]}
    return tuple(
        replace(candidate, counter_offers=_counter_offers(plan.view, by_id[candidate.release]))
        if candidate.release in with_offers
        else candidate
        for candidate in rejected
    )


def _counter_offers(view: RoundView, release: Release) -> tuple[Mapping[str, Any], ...]:
    verdict = _decide_alone(view, release)
    return find_counter_offers(view.enforced, view.balances, view.today, release.body, verdict)


def _decide_alone(view: RoundView, release: Release) -> Verdict:
    mechanisms = resolve_or_reject(release, view.enforced)
    return decide(view.enforced, view.balances, mechanisms, view.today)


def _utility(release: Release) -> float:
    """Return the utility of a release, 1 by default."""
    return 1.0 if release.utility is None else float(release.utility)


def _candidate(view: RoundView, release: Release) -> Candidate:
    try:
        mechanisms = resolve_or_reject(release, view.enforced)
    except ReleaseRejected as error:
        raise error.for_release(release.id) from None
    return make_candidate(view.enforced, release.id, _utility(release), mechanisms, view.today)


def _list_rejected(
    view: RoundView, candidates: Sequence[Candidate], problem: AllocationProblem, solution: Solution
) -> tuple[RejectedCandidate, ...]:
    """Return the candidates that are not selected, without counter-offers."""
    binding = _find_binding_rules(view.enforced.policy, problem, solution)
    costs = problem.opportunity_costs
    rejected = []
    for number in np.flatnonzero(~solution.selected).tolist():
        release = view.new_releases[number]
        fits_alone = bool(problem.fits_alone[number])
        rules = binding.get(number, ()) if fits_alone else _find_exceeded_rules(view, release)
        rejected.append(
            RejectedCandidate(
                release.id,
                fits_alone,
                candidates[number].rejection_reasons,
                tuple(rules),
                opportunity_cost=None if costs is None else float(costs[number]),
            )
        )
    return tuple(rejected)


def _find_exceeded_rules(view: RoundView, release: Release) -> list[BindingRule]:
    """Return the rules that a release exceeds even if nothing else is selected."""
    rules = [
        checks.section.compiled.rules[number]
        for checks in _decide_alone(view, release).checks
        for number in checks.rule_numbers[~checks.holds].tolist()
    ]
    return [BindingRule(rule.name, rule.unit, None) for rule in rules]


def _find_binding_rules(
    policy: CompiledPolicy, problem: AllocationProblem, solution: Solution
) -> Mapping[int, Sequence[BindingRule]]:
    """Return, per candidate number, the rules in which it does not fit beside the selected ones.

    The rules of a candidate are sorted by price, the highest first.
    """
    rules = policy.cumulative.rules
    prices: dict[int, dict[int, float | None]] = {}
    for position, row in enumerate(problem.rows):
        price = float(solution.prices[position]) if len(solution.prices) else None
        for number in row.candidates[_does_not_fit(row, solution.selected)].tolist():
            by_rule = prices.setdefault(number, {})
            previous = by_rule.get(row.rule)
            if previous is None or price is None:
                by_rule[row.rule] = price
            else:
                by_rule[row.rule] = max(previous, price)
    return {
        number: [
            BindingRule(rules[rule].name, rules[rule].unit, price)
            for rule, price in sorted(by_rule.items(), key=lambda item: (-(item[1] or 0), item[0]))
        ]
        for number, by_rule in prices.items()
    }


def _does_not_fit(row: ConstraintRow, selected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which candidates of a row are not selected and do not fit beside the selected ones."""
    in_selection = selected[row.candidates]
    after = row.costs + row.costs[in_selection].sum(axis=0)
    within = (after[:, np.newaxis] <= row.remaining) | (row.remaining >= INFINITE)
    certified = within[..., :-1].all(-1) if row.require_all else within[..., :-1].any(-1)
    fits = (certified & within[..., -1]).all(axis=1)
    excluded: NDArray[np.bool_] = ~in_selection & ~fits
    return excluded
