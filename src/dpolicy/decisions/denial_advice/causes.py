"""Causes: why a release exceeds a rule, where one property of its statement is the cause.

A cause is not guessed. The release is decided again without the property: with the relation of the
policy, without its δ, or stated for the unit of the rule. If the rule then holds, that property is
the cause. A cause names what to look at; it is not an offer, because another statement must be true
of the mechanism that was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.decisions.completion import Reading, unit_name
from dpolicy.decisions.decide import RuleChecks, Verdict
from dpolicy.decisions.denial_advice.largest_delta import without_delta
from dpolicy.decisions.denial_advice.rule_limits import RuleLimit, exceeded_limits
from dpolicy.decisions.denial_advice.trials import DecisionTrials
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, Certificate, Notion
from dpolicy.privacy.conversion import log_fraction
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.loss_arrays import DELTA_QUANTA
from dpolicy.privacy.number_text import format_up
from dpolicy.privacy.reserves.ladder import LADDER, reserve_quanta
from dpolicy.privacy.reserves.reserve_limits import smallest_epsilon
from dpolicy.privacy.thresholds import Profile, conversion_cost
from dpolicy.privacy.units.privacy_units import PrivacyUnit
from dpolicy.releases.body import Body, release_from_body

#: Largest number of units for which the release is decided as if stated for them.
MAX_UNITS = 3

#: Name, unit and whether a rule is per release: the key of a reason.
ReasonKey = tuple[str, str, bool]


def find_causes(trials: DecisionTrials, body: Body, verdict: Verdict) -> dict[ReasonKey, str]:
    """Return the cause of each exceeded rule that has one."""
    causes: dict[ReasonKey, str] = {}
    exceeded = {_rule_key(c, position) for c, position in _positions(verdict, holds=False)}
    for changed, sentence in _counterfactuals(trials, body, verdict):
        if exceeded <= causes.keys():
            break
        trial = trials.decide(changed)
        if trial is None or trial.verdict.predicate_errors:
            continue
        still = {_rule_key(c, position) for c, position in _positions(trial.verdict, holds=False)}
        for key in exceeded - still - causes.keys():
            causes[key] = sentence
    for limit in exceeded_limits(verdict):
        key = _key(limit.section.describe_rule(limit.number))
        epsilon = _epsilon_of_best_certificate(limit)
        if key not in causes and epsilon is not None:
            causes[key] = (
                "filter: the rule splits its δ between several certificates; with all of it at the "
                f"best one the loss would be ε {format_up(epsilon)}"
            )
    return causes


def _positions(verdict: Verdict, *, holds: bool) -> Iterator[tuple[RuleChecks, int]]:
    for checks in verdict.checks:
        for position, satisfied in enumerate(checks.holds.tolist()):
            if satisfied is holds:
                yield checks, position


def _rule_key(checks: RuleChecks, position: int) -> ReasonKey:
    return _key(checks.section.describe_rule(int(checks.rule_numbers[position])))


def _key(rule: Mapping[str, Any]) -> ReasonKey:
    return rule["rule"], rule["unit"], rule["each_release"]


def _counterfactuals(
    trials: DecisionTrials, body: Body, verdict: Verdict
) -> Iterator[tuple[Body, str]]:
    """Yield releases that differ from `body` in one property, with the sentence that names it."""
    units = trials.enforced.policy.units
    yield from _with_policy_relation(body, units)
    changed = without_delta(body)
    if changed is not None:
        yield changed, "δ: without its stated δ the release would fit this rule"
    exceeded_units = dict.fromkeys(
        checks.section.describe_rule(int(checks.rule_numbers[position]))["unit"]
        for checks, position in _positions(verdict, holds=False)
    )
    for unit in list(exceeded_units)[:MAX_UNITS]:
        yield from _with_unit(body, unit, units)


def _with_policy_relation(
    body: Body, units: Mapping[str, PrivacyUnit]
) -> Iterator[tuple[Body, str]]:
    """Yield the release with every mechanism stated under the relation of its unit."""
    for fields, request in zip(body["mechanisms"], release_from_body(body).mechanisms, strict=True):
        unit = units[unit_name(request, units, Reading.LEGACY) or next(iter(units))]
        if "relation" in fields and fields["relation"] != unit.relation:
            mechanisms = [
                {key: value for key, value in other.items() if key != "relation"}
                for other in body["mechanisms"]
            ]
            yield (
                {**body, "mechanisms": mechanisms},
                f"relation: `{request.name}` is stated under {fields['relation']} and "
                f"`{unit.name}` is protected under {unit.relation}; "
                f"stated under {unit.relation} it would fit this rule",
            )
            return


def _with_unit(
    body: Body, unit: str, units: Mapping[str, PrivacyUnit]
) -> Iterator[tuple[Body, str]]:
    """Yield the release with every mechanism stated for a unit."""
    for fields, request in zip(body["mechanisms"], release_from_body(body).mechanisms, strict=True):
        stated = unit_name(request, units, Reading.LEGACY)
        if stated != unit and unit not in fields.get("also", {}):
            mechanisms = [
                {**{key: value for key, value in other.items() if key != "also"}, "unit": unit}
                for other in body["mechanisms"]
            ]
            yield (
                {**body, "mechanisms": mechanisms},
                f"group size: `{request.name}` is stated for `{stated}` and charged to `{unit}` by "
                f"group privacy; stated for `{unit}` it would fit this rule",
            )
            return


def _epsilon_of_best_certificate(limit: RuleLimit) -> Fraction | None:
    """Return the ε after the release with all of δ at one certificate, if it is within the budget.

    Return None if stated δ is exceeded, or if the rule does not split its δ.
    """
    rule = limit.section.compiled.rules[limit.number]
    budget = rule.budget
    if not isinstance(budget, EpsilonDelta) or rule.base.profile is Profile.STATIC:
        return None
    maximum = limit.section.bounds.maximum
    spent = maximum[limit.section.compiled.rules.bound_numbers[limit.number]] - limit.room
    row = spent + limit.cost
    if limit.section.binding_quantity(limit.number, row) != "epsilon":
        return None
    after = row.tolist()
    delta = budget.delta - Fraction(after[-1], DELTA_QUANTA)
    if delta <= 0:
        return None
    amounts = [
        _convert_with_all_delta(delta, certificate, amount)
        for certificate, amount in zip(limit.section.certificates, after, strict=False)
        if amount < INFINITE and (certificate.notion is Notion.RENYI or certificate in LADDER)
    ]
    best = min(amounts, default=None)
    return best if best is not None and best <= budget.epsilon else None


def _convert_with_all_delta(delta: Fraction, certificate: Certificate, amount: int) -> Fraction:
    """Return the ε of an amount of an order, or beside a reserve, that has all of δ."""
    if certificate.notion is Notion.RENYI:
        return Fraction(amount, QUANTA_PER_UNIT) + conversion_cost(certificate.order, delta, 1.0)
    variance = amount + reserve_quanta(certificate)
    return Fraction(smallest_epsilon(variance, log_fraction(delta)), QUANTA_PER_UNIT)
