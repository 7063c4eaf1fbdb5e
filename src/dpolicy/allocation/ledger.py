"""Releases that compete for a ledger's budgets → who wins, in one commit, and why others lose.

The problem is built from the state under the write lock, and every winner goes through the same
decision as any release: that one is denied would be a mistake here, and then nothing is written.
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
from dpolicy.allocation.problem import Allocation, Problem, Row
from dpolicy.allocation.strategies import STRATEGIES, Strategy
from dpolicy.enforcement.check import decide, prepared
from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.enforcement.judgement import no_policy, not_proposed, read_request, readable
from dpolicy.enforcement.state import State
from dpolicy.errors import Misused, ReleaseRejected
from dpolicy.privacy.loss import INFINITE
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.rules.compiler import CompiledPolicy


@dataclass(frozen=True, slots=True)
class Binding:
    """A rule that keeps a release out, and what as much again as is left of it would be worth."""

    rule: str
    unit: str
    price: float | None

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"rule": self.rule, "unit": self.unit, "price": self.price}


@dataclass(frozen=True, slots=True)
class Loser:
    """A release that was not chosen: whether it would fit alone, and what it does not fit beside.

    Without anything that binds it would still fit: ask again.
    """

    release: str
    fits_alone: bool
    refused: tuple[str, ...]
    binding: tuple[Binding, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "fits-alone": self.fits_alone,
            "refused": list(self.refused),
            "binding": [binding.as_json() for binding in self.binding],
        }


@dataclass(frozen=True, slots=True)
class Shared:
    """What became of a batch: its worth, the most that any choice could be worth, and for whom.

    `decisions` are those of the winners, and of releases that were decided before; nothing in a
    dry run, where `chosen` still tells the winners.
    """

    utility: float
    bound: float
    gap: float
    chosen: tuple[str, ...]
    losers: tuple[Loser, ...]
    decisions: tuple[Decision, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "utility": self.utility,
            "bound": self.bound,
            "gap": self.gap,
            "chosen": list(self.chosen),
            "losers": [loser.as_json() for loser in self.losers],
            "decisions": [decision.as_json() for decision in self.decisions],
        }


def allocate(
    point: DecisionPoint,
    releases: Sequence[Release | Body],
    strategy: Strategy | str = "efficient",
    by: str = "",
    *,
    dry_run: bool = False,
) -> Shared:
    """Choose among releases and charge the winners together, or only say what would be chosen."""
    chooses = _strategy(strategy)
    asked = [read_request(release) for release in releases]
    check_ids(asked)
    seen, found = point.consult(lambda state: (_moment(state), shared(state, asked, chooses)))
    if dry_run:
        return found[0]

    def choose(state: State) -> Sequence[Release]:
        """What was chosen while others could write, or a new choice if somebody did."""
        nonlocal found
        if _moment(state) != seen:
            found = shared(state, asked, chooses)
        return found[1]

    decisions = point.submit_together(choose, by)
    return replace(found[0], decisions=decisions)


def _moment(state: State) -> tuple[int, int]:
    """All that a choice depends on besides the candidates."""
    return state.sequence, state.today


def _strategy(told: Strategy | str) -> Strategy:
    if not isinstance(told, str):
        return told
    if told not in STRATEGIES:
        raise Misused(f"there is no strategy `{told}`; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[told]


def shared(
    state: State, releases: Sequence[Release], strategy: Strategy
) -> tuple[Shared, list[Release]]:
    """Who would win in this state, and what to submit: those known before, then the winners."""
    policy = state.policy
    if policy is None:
        raise no_policy()
    known = [release for release in releases if release.id in state.entries]
    asked = [release for release in releases if release.id not in state.entries]
    for release in asked:
        not_proposed(state, release.id)  # before anything of the round is written
    candidates = [_candidate(policy, release, state.today) for release in asked]
    problem = build(prepared(policy)[0], state.balances, candidates)
    allocation = strategy(problem)
    losers = _losers(state, policy, asked, candidates, problem, allocation)
    winners = [release for release, wins in zip(asked, allocation.chosen, strict=True) if wins]
    answer = Shared(
        allocation.utility(problem),
        allocation.bound,
        allocation.gap(problem),
        tuple(release.id for release in winners),
        losers,
    )
    return answer, [*known, *winners]


def _candidate(policy: CompiledPolicy, release: Release, today: int) -> Candidate:
    """A release that does not say its utility counts as one."""
    utility = 1.0 if release.utility is None else float(release.utility)
    try:
        mechanisms = readable(release, policy)
    except ReleaseRejected as error:
        raise error.about(release.id) from None
    return candidate_of(policy, release.id, utility, mechanisms, today)


def _losers(
    state: State,
    policy: CompiledPolicy,
    releases: Sequence[Release],
    candidates: Sequence[Candidate],
    problem: Problem,
    allocation: Allocation,
) -> tuple[Loser, ...]:
    binding = _binding(policy, problem, allocation)
    found = []
    for number, release in enumerate(releases):
        if allocation.chosen[number]:
            continue
        alone = bool(problem.fits_alone[number])
        rules = binding.get(number, ()) if alone else _alone(state, policy, release)
        found.append(Loser(release.id, alone, candidates[number].refused, tuple(rules)))
    return tuple(found)


def _alone(state: State, policy: CompiledPolicy, release: Release) -> list[Binding]:
    """The rules that refuse a release whatever the others do."""
    verdict = decide(policy, state.balances, readable(release, policy), state.today)
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


def _kept_out(row: Row, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which losers of a row do not fit beside its winners."""
    wins = chosen[row.candidates]
    after = row.costs + row.costs[wins].sum(axis=0)
    within = (after[:, np.newaxis] <= row.left) | (row.left >= INFINITE)
    certified = within[..., :-1].all(-1) if row.every else within[..., :-1].any(-1)
    fits = (certified & within[..., -1]).all(axis=1)
    kept_out: NDArray[np.bool_] = ~wins & ~fits
    return kept_out
