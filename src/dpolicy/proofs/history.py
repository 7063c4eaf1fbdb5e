"""Histories as counter-examples: releases that the policy allows, and the loss that they reach.

A history has Laplace or Gaussian noise, whose loss is known exactly, or leaks of a stated
probability. So it is a real counter-example and not only an accounting value. A decision point on a
ledger in memory decides every release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction

from dpolicy.balances.enforced_policy import enforce
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import PredicateFailed, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.request_evaluation import evaluate_release, parse_request
from dpolicy.predicates.expression import matches
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, Certificate, quanta_down
from dpolicy.privacy.cost_report import round_down_to_printed_float
from dpolicy.privacy.loss import INFINITE
from dpolicy.proofs.mechanism_cases import CaseSearch, MechanismCase
from dpolicy.proofs.proof import notion_name
from dpolicy.releases.body import Body
from dpolicy.releases.release_schema import PredicateInput

#: Releases into which one case is divided, if per-release rules deny a single one.
DIVISIONS = (1, 4, 16)

#: The same, with each release on another day, if rules for days, months or years deny them.
DIVISIONS_BY_DAY = (4, 16, 64, 400)

#: Laplace noise of many releases rarely has its largest loss: more of them break no claim.
MAX_LAPLACE_DIVISION = 16

#: First of these days, and the distance between them: no period of up to a year has two.
_FIRST_DAY, _DAYS_APART = date(2100, 1, 1), timedelta(days=800)

#: Releases of one history.
MAX_RELEASES = 1_000

#: The smallest amount of a mechanism: smaller parameters are refused (M006).
_LEAST = Fraction(1, 10**8)

#: Cases with their amounts.
Amounts = Sequence[tuple[MechanismCase, Fraction]]


@dataclass(frozen=True, slots=True)
class History:
    """Releases that the policy allows one after the other, with a sum of losses for the unit."""

    releases: tuple[Body, ...]
    kind: str
    notion: str
    reached: Fraction

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the history."""
        return {"reached": {self.notion: float(self.reached)}, "releases": list(self.releases)}


def find_history(
    search: CaseSearch, amounts: Amounts, kind: str, certificate: Certificate | None
) -> History | None:
    """Return a history with the amounts that the decision point allows, or None.

    `kind` is `laplace`, with amounts of pure ε, `gaussian`, with amounts of ρ, or `declared`, with
    amounts of δ. `reached` is the sum in `certificate` for the unit of the question; None is δ, the
    probability that one of the releases leaks.
    """
    divisions = [(division, False) for division in DIVISIONS]
    if search.policy.units[search.question.unit].period is None:
        divisions += [(division, True) for division in DIVISIONS_BY_DAY]
    for division, by_day in divisions:
        if kind == "laplace" and division > MAX_LAPLACE_DIVISION:
            break
        for unit in _stated_units(search):
            releases = _write_releases(search, amounts, kind, unit, division)
            if releases is not None and by_day:
                releases = _spread(releases, division)
            reached = None if releases is None else confirm(search, releases, certificate)
            if releases and reached is not None:
                notion = "delta" if certificate is None else notion_name(certificate)
                return History(releases, kind, notion, reached)
    return None


def confirm(
    search: CaseSearch, releases: Sequence[Body], certificate: Certificate | None
) -> Fraction | None:
    """Return the loss of the releases for the unit and scope; None if one is not allowed."""
    point = DecisionPoint(MemoryStore())
    try:
        point.apply(search.policy)
        if not all(_is_allowed(point, release) for release in releases):
            return None
    except ReleaseRejected:
        return None
    finally:
        point.close()
    return _sum_losses(search, releases, certificate)


def _is_allowed(point: DecisionPoint, release: Body) -> bool:
    """Submit a release that is allowed now. A denial would compute counter-offers."""
    request = parse_request(release)
    decision = point.read_state(lambda state: evaluate_release(state, request))
    return decision.allowed and point.submit(request).allowed


def _sum_losses(
    search: CaseSearch, releases: Sequence[Body], certificate: Certificate | None
) -> Fraction | None:
    if certificate is None:
        stated = (m["mechanism"]["delta"] for release in releases for m in release["mechanisms"])
        return 1 - math.prod((1 - Fraction(repr(delta)) for delta in stated), start=Fraction(1))
    enforced = enforce(search.policy)
    row = list(search.policy.units).index(search.question.unit)
    total = 0
    for release in releases:
        resolved, _ = resolve_release(parse_request(release), enforced, (certificate,))
        for mechanism in resolved:
            if matches(search.question.scope, mechanism.predicate_input):
                total += int(mechanism.costs[row][0])
    return Fraction(total, QUANTA_PER_UNIT) if total < INFINITE else None


def _stated_units(search: CaseSearch) -> list[str]:
    """Return the units of the usable rules, then the unit of the question: the largest first.

    A mechanism that is stated for a larger unit often costs a smaller unit no more.
    """
    covered = search.policy.vocabulary.covered
    names = dict.fromkeys([*(rule.unit for rule in search.rules.values()), search.question.unit])
    return sorted(names, key=lambda name: -sum((other, name) in covered for other in names))


def _write_releases(
    search: CaseSearch, amounts: Amounts, kind: str, unit: str, division: int
) -> tuple[Body, ...] | None:
    """Return the releases; None if a case cannot have this kind of mechanism."""
    releases: list[Body] = []
    if len(amounts) * division > MAX_RELEASES:
        return None
    for case, amount in amounts:
        share = _round_share(amount / division, kind)
        mechanism = _with_kind(search, case, kind)
        if mechanism is None:
            return None
        for _ in range(division if share else 0):
            name = f"history-{len(releases) + 1}"
            releases.append(_write_release(name, mechanism, share, unit))
    return tuple(releases)


def _spread(releases: tuple[Body, ...], division: int) -> tuple[Body, ...]:
    """Return the releases with one day for each, the same days for each case."""
    spread = []
    for number, release in enumerate(releases):
        day = (_FIRST_DAY + number % division * _DAYS_APART).isoformat()
        (mechanism,) = release["mechanisms"]
        dated = {**mechanism, "time": {"from": day, "to": day}}
        spread.append({**release, "mechanisms": [dated]})
    return tuple(spread)


def _round_share(share: Fraction, kind: str) -> Fraction:
    """Return a share as a written decimal that is not above it; 0 if it is too small."""
    if kind == "declared":
        return Fraction(repr(round_down_to_printed_float(share)))
    rounded = Fraction(quanta_down(share), QUANTA_PER_UNIT)
    return rounded if rounded >= _LEAST else Fraction(0)


def _with_kind(search: CaseSearch, case: MechanismCase, kind: str) -> PredicateInput | None:
    """Return the mechanism of a case with another kind, if it stays in the case."""
    mechanism = replace(case.mechanism, mechanism=kind)
    try:
        inside = matches(search.question.scope, mechanism)
        return mechanism if inside and search.classify(mechanism).rules == case.rules else None
    except PredicateFailed:
        return None


def _write_release(name: str, mechanism: PredicateInput, amount: Fraction, unit: str) -> Body:
    fields: dict[str, object] = {
        "mechanism": _parameters(mechanism.mechanism, amount),
        "unit": unit,
        "additive": True,
    }
    if mechanism.attributes:
        fields["attributes"] = list(mechanism.attributes)
    labels = {
        key: value if isinstance(value, str) else list(value)
        for key, value in mechanism.labels.items()
        if value
    }
    if labels:
        fields["labels"] = labels
    author = {"by": mechanism.by} if mechanism.by else {}
    return {"release": name, **author, "mechanisms": [fields]}


def _parameters(kind: str, amount: Fraction) -> dict[str, object]:
    """Return the parameters of a mechanism that loses at most the amount, and hardly less."""
    if kind == "declared":
        return {"kind": kind, "epsilon": 0, "delta": float(amount)}
    if kind == "laplace":
        return {"kind": kind, "sensitivity": float(amount), "scale": 1}
    sigma = Fraction(repr(1 / math.sqrt(2 * amount)))
    while 1 / (2 * sigma * sigma) > amount:
        sigma = Fraction(repr(math.nextafter(float(sigma), math.inf)))
    return {"kind": kind, "sigma": float(sigma)}
