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

from dpolicy.allocation.batch import check_ids
from dpolicy.allocation.building import build
from dpolicy.allocation.candidates import Candidate, candidate_of
from dpolicy.allocation.market import Market
from dpolicy.allocation.problem import Allocation, Problem, Row
from dpolicy.allocation.strategies import STRATEGIES, Strategy
from dpolicy.allocation.told import Binding, Loser, Price, Shared
from dpolicy.enforcement.balances import Balances
from dpolicy.enforcement.check import decide, prepared
from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.enforcement.judgement import (
    no_policy,
    not_proposed,
    offers,
    read_request,
    readable,
)
from dpolicy.enforcement.state import State
from dpolicy.errors import Misused, ReleaseRejected
from dpolicy.privacy.budget import amount
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy

#: So many losers, the most valuable ones, are told what would fit: each is decided many times.
MOST_OFFERED = 100


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """All of a state that a choice depends on: balances of its own, so that others can write."""

    sequence: int
    today: int
    policy: CompiledPolicy
    balances: Balances
    known: tuple[Release, ...]
    asked: tuple[Release, ...]

    @property
    def moment(self) -> tuple[int, int]:
        """When it was seen."""
        return self.sequence, self.today


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """What is chosen, and what to submit; the winners are charged in what was seen."""

    told: Shared
    submitted: tuple[Release, ...]
    seen: _Seen


def allocate(
    point: DecisionPoint,
    releases: Sequence[Release | Body],
    strategy: Strategy | str = "efficient",
    by: str = "",
    *,
    dry_run: bool = False,
    market: Market | None = None,
) -> Shared:
    """Choose among releases and charge the winners together, or only say what would be chosen.

    With a market of earlier rounds, `price` leaves to later ones what they would pay more for.
    """
    chooses = _strategy(strategy)
    asked = [read_request(release) for release in releases]
    check_ids(asked)
    seen = point.consult(lambda state: _seen(state, asked))
    found = _chosen(seen, chooses, market)
    decisions: tuple[Decision, ...] = ()
    if not dry_run:

        def choose(state: State) -> Sequence[Release]:
            """What was chosen while others could write, or a new choice if somebody did."""
            nonlocal found
            if (state.sequence, state.today) != seen.moment:
                found = _chosen(_seen(state, asked), chooses, market)
            return found.submitted

        decisions = point.submit_together(choose, by)
    return replace(found.told, losers=_with_offers(found), decisions=decisions)


def _strategy(told: Strategy | str) -> Strategy:
    if not isinstance(told, str):
        return told
    if told not in STRATEGIES:
        raise Misused(f"there is no strategy `{told}`; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[told]


def _seen(state: State, releases: Sequence[Release]) -> _Seen:
    """A look at a state."""
    policy = state.policy
    if policy is None:
        raise no_policy()
    known = tuple(release for release in releases if release.id in state.entries)
    asked = tuple(release for release in releases if release.id not in state.entries)
    for release in asked:
        not_proposed(state, release.id)  # before anything of the round is written
    return _Seen(state.sequence, state.today, policy, state.balances.copy(), known, asked)


def _chosen(seen: _Seen, strategy: Strategy, market: Market | None) -> _Choice:
    """Who would win, and what to submit: those known before, then the winners."""
    candidates = [_candidate(seen.policy, release, seen.today) for release in seen.asked]
    problem = build(prepared(seen.policy)[0], seen.balances, candidates, market=market)
    allocation = strategy(problem)
    losers = _losers(seen, candidates, problem, allocation)
    winners = np.flatnonzero(allocation.chosen).tolist()
    for number in winners:
        for charge in candidates[number].charges:
            seen.balances.add(charge, 1)
    told = Shared(
        allocation.utility(problem),
        allocation.bound,
        allocation.gap(problem),
        tuple(seen.asked[number].id for number in winners),
        tuple(release.id for release in seen.known),
        losers,
        _prices(seen.policy, problem, allocation),
        market=market and market.after(problem, allocation),
    )
    return _Choice(told, (*seen.known, *(seen.asked[number] for number in winners)), seen)


def _with_offers(choice: _Choice) -> tuple[Loser, ...]:
    """The losers, the most valuable of them told what would fit once the winners are charged."""
    by_id = {release.id: release for release in choice.seen.asked}
    ranked = sorted(choice.told.losers, key=lambda loser: -_utility(by_id[loser.release]))
    told = {loser.release for loser in ranked[:MOST_OFFERED]}
    return tuple(
        replace(loser, would_fit=_offers(choice.seen, by_id[loser.release]))
        if loser.release in told
        else loser
        for loser in choice.told.losers
    )


def _offers(seen: _Seen, release: Release) -> tuple[Mapping[str, Any], ...]:
    verdict = decide(seen.policy, seen.balances, readable(release, seen.policy), seen.today)
    return offers(seen.policy, seen.balances, seen.today, release.body, verdict)


def _utility(release: Release) -> float:
    """A release that does not say its utility counts as one."""
    return 1.0 if release.utility is None else float(release.utility)


def _candidate(policy: CompiledPolicy, release: Release, today: int) -> Candidate:
    try:
        mechanisms = readable(release, policy)
    except ReleaseRejected as error:
        raise error.about(release.id) from None
    return candidate_of(policy, release.id, _utility(release), mechanisms, today)


def _losers(
    seen: _Seen, candidates: Sequence[Candidate], problem: Problem, allocation: Allocation
) -> tuple[Loser, ...]:
    binding = _binding(seen.policy, problem, allocation)
    found = []
    for number, release in enumerate(seen.asked):
        if allocation.chosen[number]:
            continue
        alone = bool(problem.fits_alone[number])
        rules = binding.get(number, ()) if alone else _alone(seen, release)
        later = None if problem.later is None else float(problem.later[number])
        found.append(
            Loser(release.id, alone, candidates[number].refused, tuple(rules), later=later)
        )
    return tuple(found)


def _alone(seen: _Seen, release: Release) -> list[Binding]:
    """The rules that refuse a release whatever the others do."""
    verdict = decide(seen.policy, seen.balances, readable(release, seen.policy), seen.today)
    return [
        Binding(checks.of.section.rules[number].name, checks.of.section.rules[number].unit, None)
        for checks in verdict.checks
        for number in checks.numbers[~checks.holds].tolist()
    ]


def _binding(
    policy: CompiledPolicy, problem: Problem, allocation: Allocation
) -> Mapping[int, Sequence[Binding]]:
    """For each loser, the rules in which it does not fit beside the winners; dearest first."""
    rules = policy.cumulative.rules
    prices: dict[int, dict[int, float | None]] = {}
    for position, row in enumerate(problem.rows):
        price = float(allocation.prices[position]) if len(allocation.prices) else None
        for number in row.candidates[_kept_out(row, allocation.chosen)].tolist():
            own = prices.setdefault(number, {})
            before = own.get(row.rule)
            own[row.rule] = price if before is None or price is None else max(before, price)
    return {
        number: [
            Binding(rules[rule].name, rules[rule].unit, price)
            for rule, price in sorted(own.items(), key=lambda item: (-(item[1] or 0), item[0]))
        ]
        for number, own in prices.items()
    }


def _prices(policy: CompiledPolicy, problem: Problem, allocation: Allocation) -> tuple[Price, ...]:
    """What one more unit of each rule's budget would be worth, dearest first.

    As much again as is left of a row is worth its price; one more unit raises all thresholds of a
    rule by about a unit's part of them, and those of μ, which are squares, by twice that.
    """
    worths: dict[int, float] = {}
    for row, price in zip(problem.rows, allocation.prices.tolist(), strict=False):
        if price > 0 and row.rest > 0:
            worths[row.rule] = worths.get(row.rule, 0.0) + price / row.rest
    found = []
    for number, worth in worths.items():
        rule = policy.cumulative.rules[number]
        known = amount(rule.budget)
        if known is not None and known[1] > 0:
            notion, size = known
            found.append(Price(rule, notion, worth * (2 if notion == "mu" else 1) / float(size)))
    return tuple(sorted(found, key=lambda price: -price.worth))


def _kept_out(row: Row, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which losers of a row do not fit beside its winners."""
    wins = chosen[row.candidates]
    after = row.costs + row.costs[wins].sum(axis=0)
    within = (after[:, np.newaxis] <= row.left) | (row.left >= INFINITE)
    certified = within[..., :-1].all(-1) if row.every else within[..., :-1].any(-1)
    fits = (certified & within[..., -1]).all(axis=1)
    kept_out: NDArray[np.bool_] = ~wins & ~fits
    return kept_out
