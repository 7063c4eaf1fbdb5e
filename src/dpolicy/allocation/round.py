"""Releases that compete for a ledger's budgets → who wins, in one commit, and why others lose.

A choice is made on balances of its own while others can write, and again under the lock if somebody
did. Every winner goes through the same decision as any release: that one is denied would be a
mistake here, and then nothing is written.
Losers are not recorded; they may ask again. An id that was decided before keeps its answer.
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
from dpolicy.allocation.round_result import (
    AllocationResult,
    BindingRule,
    RejectedCandidate,
    ShadowPrice,
)
from dpolicy.allocation.strategies import STRATEGIES, Strategy
from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.decide import decide
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import OperationRejected, ReleaseRejected
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.pdp.request_evaluation import active_policy, ensure_not_pending, parse_request
from dpolicy.privacy.budget import budget_amount
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: So many losers, the most valuable ones, are told what would fit: each is decided many times.
MAX_CANDIDATES_WITH_OFFERS = 100


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """All of a state that a choice depends on: balances of its own, so that others can write."""

    sequence: int
    today: int
    enforced: EnforcedPolicy
    balances: Balances
    recorded_releases: tuple[Release, ...]
    new_releases: tuple[Release, ...]

    @property
    def moment(self) -> tuple[int, int]:
        """When it was seen."""
        return self.sequence, self.today


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """What is chosen, and what to submit; the winners are charged in what was seen."""

    result: AllocationResult
    submitted: tuple[Release, ...]
    view: _Seen


def allocate(
    point: DecisionPoint,
    releases: Sequence[Release | Body],
    strategy: Strategy | str = "efficient",
    by: str = "",
    *,
    dry_run: bool = False,
    market: CarriedPrices | None = None,
    expected_policy: ExpectedPolicy = ANY_POLICY,
) -> AllocationResult:
    """Choose among releases and charge the winners together, or only say what would be chosen.

    With a market of earlier rounds, `price` leaves to later ones what they would pay more for.
    """
    chooses = _strategy(strategy)
    asked = [parse_request(release) for release in releases]
    check_unique_ids(asked)
    seen = point.read_state(lambda state: _seen(state, asked))
    found = _chosen(seen, chooses, market)
    decisions: tuple[Decision, ...] = ()
    if not dry_run:

        def choose(state: LedgerState) -> Sequence[Release]:
            """What was chosen while others could write, or a new choice if somebody did."""
            nonlocal found
            if (state.sequence, state.today) != seen.moment:
                found = _chosen(_seen(state, asked), chooses, market)
            return found.submitted

        decisions = point.submit_batch(choose, by, expected_policy=expected_policy)
    return replace(found.result, not_selected=_with_offers(found), decisions=decisions)


def _strategy(strategy: Strategy | str) -> Strategy:
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        raise OperationRejected(
            f"there is no strategy `{strategy}`; there are {', '.join(STRATEGIES)}"
        )
    return STRATEGIES[strategy]


def _seen(state: LedgerState, releases: Sequence[Release]) -> _Seen:
    """A look at a state."""
    enforced = active_policy(state)
    known = tuple(release for release in releases if release.id in state.entries)
    asked = tuple(release for release in releases if release.id not in state.entries)
    for release in asked:
        ensure_not_pending(state, release.id)  # before anything of the round is written
    return _Seen(state.sequence, state.today, enforced, state.balances.copy(), known, asked)


def _chosen(view: _Seen, strategy: Strategy, market: CarriedPrices | None) -> _Choice:
    """Who would win, and what to submit: those known before, then the winners."""
    candidates = [_candidate(view.enforced, release, view.today) for release in view.new_releases]
    problem = build_problem(view.enforced.cumulative, view.balances, candidates, market=market)
    allocation = strategy(problem)
    losers = _losers(view, candidates, problem, allocation)
    winners = np.flatnonzero(allocation.selected).tolist()
    for number in winners:
        for charge in candidates[number].charges:
            view.balances.add(charge, 1)
    told = AllocationResult(
        allocation.utility(problem),
        allocation.bound,
        allocation.gap(problem),
        tuple(view.new_releases[number].id for number in winners),
        tuple(release.id for release in view.recorded_releases),
        losers,
        _prices(view.enforced.policy, problem, allocation),
        carried_prices=market and market.with_round(problem, allocation),
    )
    return _Choice(
        told, (*view.recorded_releases, *(view.new_releases[number] for number in winners)), view
    )


def _with_offers(choice: _Choice) -> tuple[RejectedCandidate, ...]:
    """The losers, the most valuable of them told what would fit once the winners are charged."""
    by_id = {release.id: release for release in choice.view.new_releases}
    ranked = sorted(choice.result.not_selected, key=lambda loser: -_utility(by_id[loser.release]))
    told = {loser.release for loser in ranked[:MAX_CANDIDATES_WITH_OFFERS]}
    return tuple(
        replace(loser, counter_offers=_offers(choice.view, by_id[loser.release]))
        if loser.release in told
        else loser
        for loser in choice.result.not_selected
    )


def _offers(view: _Seen, release: Release) -> tuple[Mapping[str, Any], ...]:
    verdict = decide(
        view.enforced, view.balances, resolve_or_reject(release, view.enforced), view.today
    )
    return find_counter_offers(view.enforced, view.balances, view.today, release.body, verdict)


def _utility(release: Release) -> float:
    """A release that does not say its utility counts as one."""
    return 1.0 if release.utility is None else float(release.utility)


def _candidate(enforced: EnforcedPolicy, release: Release, today: int) -> Candidate:
    try:
        mechanisms = resolve_or_reject(release, enforced)
    except ReleaseRejected as error:
        raise error.for_release(release.id) from None
    return make_candidate(enforced, release.id, _utility(release), mechanisms, today)


def _losers(
    view: _Seen, candidates: Sequence[Candidate], problem: AllocationProblem, allocation: Solution
) -> tuple[RejectedCandidate, ...]:
    binding = _binding(view.enforced.policy, problem, allocation)
    found = []
    for number, release in enumerate(view.new_releases):
        if allocation.selected[number]:
            continue
        alone = bool(problem.fits_alone[number])
        rules = binding.get(number, ()) if alone else _alone(view, release)
        later = (
            None if problem.opportunity_costs is None else float(problem.opportunity_costs[number])
        )
        found.append(
            RejectedCandidate(
                release.id,
                alone,
                candidates[number].refusal_reasons,
                tuple(rules),
                opportunity_cost=later,
            )
        )
    return tuple(found)


def _alone(view: _Seen, release: Release) -> list[BindingRule]:
    """The rules that refuse a release whatever the others do."""
    verdict = decide(
        view.enforced, view.balances, resolve_or_reject(release, view.enforced), view.today
    )
    return [
        BindingRule(
            checks.section.compiled.rules[number].name,
            checks.section.compiled.rules[number].unit,
            None,
        )
        for checks in verdict.checks
        for number in checks.rule_numbers[~checks.holds].tolist()
    ]


def _binding(
    policy: CompiledPolicy, problem: AllocationProblem, allocation: Solution
) -> Mapping[int, Sequence[BindingRule]]:
    """For each loser, the rules in which it does not fit beside the winners; dearest first."""
    rules = policy.cumulative.rules
    prices: dict[int, dict[int, float | None]] = {}
    for position, row in enumerate(problem.rows):
        price = float(allocation.prices[position]) if len(allocation.prices) else None
        for number in row.candidates[_kept_out(row, allocation.selected)].tolist():
            own = prices.setdefault(number, {})
            before = own.get(row.rule)
            own[row.rule] = price if before is None or price is None else max(before, price)
    return {
        number: [
            BindingRule(rules[rule].name, rules[rule].unit, price)
            for rule, price in sorted(own.items(), key=lambda item: (-(item[1] or 0), item[0]))
        ]
        for number, own in prices.items()
    }


def _prices(
    policy: CompiledPolicy, problem: AllocationProblem, allocation: Solution
) -> tuple[ShadowPrice, ...]:
    """What one more unit of each rule's budget would be worth, dearest first.

    As much again as is left of a row is worth its price; one more unit raises all thresholds of a
    rule by about a unit's part of them, and those of μ, which are squares, by twice that.
    """
    worths: dict[int, float] = {}
    for row, price in zip(problem.rows, allocation.prices.tolist(), strict=False):
        if price > 0 and row.remaining_share > 0:
            worths[row.rule] = worths.get(row.rule, 0.0) + price / row.remaining_share
    found = []
    for number, worth in worths.items():
        rule = policy.cumulative.rules[number]
        known = budget_amount(rule.budget)
        if known is not None and known[1] > 0:
            notion, size = known
            found.append(
                ShadowPrice(rule, notion, worth * (2 if notion == "mu" else 1) / float(size))
            )
    return tuple(sorted(found, key=lambda price: -price.marginal_utility))


def _kept_out(row: ConstraintRow, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which losers of a row do not fit beside its winners."""
    wins = chosen[row.candidates]
    after = row.costs + row.costs[wins].sum(axis=0)
    within = (after[:, np.newaxis] <= row.remaining) | (row.remaining >= INFINITE)
    certified = within[..., :-1].all(-1) if row.require_all else within[..., :-1].any(-1)
    fits = (certified & within[..., -1]).all(axis=1)
    kept_out: NDArray[np.bool_] = ~wins & ~fits
    return kept_out
