"""Limits that a rule sets on the loss of a scope, in each notion (docs/theory/proofs.md).

A rule that is enforced bounds the sum of the costs of the mechanisms in its scope. A rule in
another notion bounds it too where the cost of every mechanism converts and the sum of the converted
costs is at most the converted sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpolicy.predicates.expression import reads_attribute
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Renyi, Unlimited, Zcdp
from dpolicy.privacy.certificates import MU_SQUARED, PURE, RHO, Certificate, Notion, renyi
from dpolicy.proofs.proof_question import Question
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule
from dpolicy.rules.scope_order import order_units


def usable_rules(policy: CompiledPolicy, question: Question) -> dict[int, Rule]:
    """Return the kept cumulative rules, by number, that bound mechanisms of the question.

    The conditions are those of pruning (theory 1.5, A): the unit of the rule is the unit of the
    question or larger, and every block of the question lies inside one block of the rule.
    """
    section = policy.cumulative
    names = sorted({question.unit, *(base.unit for base in section.rules.bases)})
    order = order_units(names, policy.checked_policy_set)
    own_unit = names.index(question.unit)
    larger = {name for number, name in enumerate(names) if order.leq(own_unit, number)}
    read = policy.schema.attributes.intersection(map(str, policy.partitions)) - question.at.keys()
    unsplit = {name for name in read if reads_attribute(question.scope, name)}
    rules = (section.rules[int(number)] for number in section.pruning.kept.nonzero()[0])
    return {
        rule.number: rule
        for rule in rules
        if rule.unit in larger and all(_reads(rule, name) for name in unsplit)
    }


def _reads(rule: Rule, attribute: str) -> bool:
    return any(reads_attribute(predicate, attribute) for predicate in rule.predicates)


def additive_certificates(rules: Mapping[int, Rule]) -> list[Certificate]:
    """Return pure ε, ρ, μ², and the Rényi orders of the budgets."""
    orders = {
        order
        for rule in rules.values()
        if isinstance(rule.budget, Renyi)
        for order, _ in rule.budget.orders
    }
    return [PURE, RHO, MU_SQUARED, *(renyi(order) for order in sorted(orders))]


def additive_limit(rule: Rule, certificate: Certificate) -> Fraction | None:
    """Return the limit that a rule sets on a sum in one certificate; None if it sets none.

    Pure ε is ε²/2 in ρ, ρ is ρα at order α, and μ is μ²/2 in ρ (Bun, Steinke 2016). An (ε, δ)
    budget with δ > 0 is enforced by a choice of certificates, so it limits none of them.
    """
    if rule.bound.delta or len(rule.bound.clauses) > 1:
        return None
    return _budget_limit(rule.budget, certificate)


def _budget_limit(budget: Budget, certificate: Certificate) -> Fraction | None:
    match budget:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return None if delta else _pure_limit(epsilon, certificate)
        case Zcdp(rho=rho):
            return _rho_limit(rho, certificate)
        case Gdp(mu=mu):
            if certificate == MU_SQUARED:
                return mu * mu
            return _rho_limit(mu * mu / 2, certificate)
        case Renyi(orders=orders):
            if certificate.notion is not Notion.RENYI:
                return None
            values = [value for order, value in orders if order >= certificate.order]
            return min(values, default=None)
        case Unlimited():
            return None


def _pure_limit(epsilon: Fraction, certificate: Certificate) -> Fraction | None:
    if certificate == PURE:
        return epsilon
    as_rho = _rho_limit(epsilon * epsilon / 2, certificate)
    return min(epsilon, as_rho) if as_rho and certificate.notion is Notion.RENYI else as_rho


def _rho_limit(rho: Fraction, certificate: Certificate) -> Fraction | None:
    if certificate == RHO:
        return rho
    return rho * certificate.order if certificate.notion is Notion.RENYI else None
