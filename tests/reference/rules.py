"""Naive rules of the paper: expand every rule and sum fractions.

The module follows theory 0.1, 1.4, 1.5, 2.4 and language 1, not the code: it has no index, no
pruning, no product structure and no numpy. A policy set is the plain dict that YAML or JSON gives.
Predicates are CEL of the simplest kind, turned into Python by replacing operators.

Thresholds come from 50 digits and are rounded down to quanta of 10⁻¹², as documented. The code may
round one quantum lower, because it allows for the error of floats. Decisions are still comparable
if costs are multiples of 10⁻³: only thresholds with a logarithm are rounded, and none of those lies
within a quantum of such a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import floor
from typing import Any

from mpmath import mp
from tests.reference import newest_accounting

mp.dps = 50
QUANTUM = Fraction(1, 10**12)
GRID = tuple(Fraction(order) for order in ("2", "2.5", "3", "4", "5", "6", "8", "16", "32", "64"))

PolicyDict = Mapping[str, Any]
#: A certificate: "pure", "rho", "mu" (its square), or a Rényi order.
Key = str | Fraction
#: Amounts by certificate (a missing amount is infinite), and the δ-side.
Cost = tuple[Mapping[Key, Fraction], Fraction]
#: `epsilon` with `delta`, `rho`, `mu`, or Rényi orders; an empty mapping is unlimited.
Budget = Mapping[Key, Fraction]


@dataclass(frozen=True)
class Mechanism:
    """A mechanism: predicate input, the region it reads, and its cost per unit."""

    attributes: frozenset[str] = frozenset()
    labels: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    kind: str = "declared"
    by: str = ""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    days: frozenset[date] | None = None


@dataclass(frozen=True)
class Rule:
    """A rule: name, unit, scope (all of its predicates), and the bound on composed losses."""

    name: str
    unit: str
    predicates: tuple[str, ...]
    budget: Budget
    each_release: bool
    clauses: tuple[Mapping[Key, Fraction], ...] = ()
    delta: Fraction | None = None
    #: What converts each certificate to ε, and the part of δ of the reserves; defaults 3 only.
    added: Mapping[Key, Fraction] = field(default_factory=dict)
    reserved: Fraction = Fraction(0)


def number(written: Any) -> Fraction:
    """Return a decimal exactly as it is written in the text."""
    return Fraction(str(written))


def expand(policy: PolicyDict, section: str) -> list[Rule]:
    """Return all rules of `policies` or `each-release`: Algorithm 1 of the paper."""
    definitions = policy.get(section, [])
    rules = [
        Rule(name, unit, (when,), budget, section == "each-release")
        for base in definitions
        if base["kind"] != "extension"
        for unit in base.get("units") or [base["unit"]]
        for name, when, budget in scopes(policy, base)
    ]
    for extension in (
        policy_definition
        for policy_definition in definitions
        if policy_definition["kind"] == "extension"
    ):
        rules = [
            replace(
                rule,
                name=f"{rule.name} × {setting['name']}",
                predicates=(*rule.predicates, setting["when"]),
                budget=apply_function(setting["budget"], rule.budget),
            )
            for rule in rules
            for setting in extension["settings"]
        ]
    return [replace(rule, **thresholds(policy, rule.budget)) for rule in rules]


def scopes(policy: PolicyDict, base: Mapping[str, Any]) -> Iterator[tuple[str, str, Budget]]:
    """Return the scopes of one base policy: name, predicate, budget."""
    schema = policy.get("schema", {})
    attributes = schema.get("attributes", {})
    if base["kind"] == "custom":
        yield base["name"], base["when"], parse_budget(policy, base["budget"])
        return

    def by_risk(name: str, definition: Mapping[str, Any]) -> Budget:
        exception = base.get("except", {}).get(name)
        return parse_budget(
            policy, base["budgets"][definition["risk"]] if exception is None else exception
        )

    if base["kind"] == "attribute":
        for name, definition in attributes.items():
            yield f"{base['name']}[{name}]", uses_any([name]), by_risk(name, definition)
    else:
        levels = schema.get("membership-levels", ["member", "strong", "weak"])
        for name, definition in schema.get("categories", {}).items():
            for depth, level in enumerate(levels):
                counted_levels = levels[: depth + 1]
                users = [
                    a
                    for a, s in attributes.items()
                    if any(name in s.get(c, ()) for c in counted_levels)
                ]
                budget = apply_function(
                    base.get("levels", {}).get(level, "same"), by_risk(name, definition)
                )
                yield f"{base['name']}[{name}, {level}]", uses_any(users), budget


def uses_any(names: Sequence[str]) -> str:
    """Return the predicate of a generated scope."""
    return " || ".join(f'"{name}" in attributes' for name in names) or "false"


def parse_budget(policy: PolicyDict, value: Any) -> Budget:
    """Return a budget in fractions; an ε without δ takes the δ of the accounting."""
    if value == "unlimited":
        return {}
    if "renyi" in value:
        return {number(order): number(limit) for order, limit in value["renyi"].items()}
    budget: dict[Key, Fraction] = {key: number(amount) for key, amount in value.items()}
    if "epsilon" in budget and "delta" not in budget:
        budget["delta"] = number(policy["accounting"]["delta"])
    return budget


def apply_function(function: Any, budget: Budget) -> Budget:
    """Apply a budget function to ε, ρ or μ; δ and an unlimited budget do not change."""
    if function == "same" or not budget:
        return budget
    key: Key = next(key for key in ("epsilon", "rho", "mu") if key in budget)
    x = budget[key]
    if "times" in function:
        return {**budget, key: x * number(function["times"])}
    if "plus" in function:
        return {**budget, key: x + number(function["plus"])}
    points = [(number(a), number(b)) for a, b in function["through"]]
    lines = list(pairwise(points))
    (x0, y0), (x1, y1) = next((line for line in lines if x <= line[1][0]), lines[-1])
    return {**budget, key: y0 + (x - x0) * (y1 - y0) / (x1 - x0)}


def thresholds(policy: PolicyDict, budget: Budget) -> dict[str, Any]:
    """Return the clauses, one of which must hold, and the δ-side.

    The profile is `classic`; a policy that states `anchored` has accounting defaults 3.
    """
    if "epsilon" not in budget:
        squared = {key: value**2 if key == "mu" else value for key, value in budget.items()}
        return {"clauses": (round_down(squared),), "delta": Fraction(0) if budget else None}
    orders = policy.get("accounting", {}).get("orders", "default")
    grid = GRID if orders == "default" else tuple(sorted(number(order) for order in orders))
    if not is_newest(policy):
        return classic(budget["epsilon"], budget["delta"], grid)
    newest = newest_accounting.thresholds(budget["epsilon"], budget["delta"], grid)
    return {**newest, "clauses": tuple(map(round_down, newest["clauses"]))}


def is_newest(policy: PolicyDict) -> bool:
    """Return whether a policy has accounting defaults 3."""
    return bool(policy.get("accounting", {}).get("profile") == "anchored")


@cache
def classic(epsilon: Fraction, delta: Fraction, grid: tuple[Fraction, ...]) -> dict[str, Any]:
    """Return the thresholds ε − log(1/δ)/(α−1) ≥ 0; δ minus the sum of δκ is the δ-side."""
    clauses: list[Mapping[Key, Fraction]] = [round_down({"pure": epsilon})]
    if not delta:
        return {"clauses": tuple(clauses), "delta": Fraction(0)}
    for order in grid:
        threshold = epsilon - log_inverse(delta) / (order - 1)
        clauses += [round_down({order: threshold})] if threshold >= 0 else []
    delta_side = delta * (1 - sum(map(kappa, grid), Fraction(0)))
    return {"clauses": tuple(clauses), "delta": delta_side}


def round_down(clause: Mapping[Key, Fraction]) -> Mapping[Key, Fraction]:
    """Round the thresholds of a clause down to quanta."""
    return {key: floor(value / QUANTUM) * QUANTUM for key, value in clause.items()}


@cache
def log_inverse(delta: Fraction) -> Fraction:
    """Return log(1/δ) to 50 digits."""
    return Fraction(mp.nstr(mp.log(mp.mpf(delta.denominator) / delta.numerator), 48))


@cache
def kappa(order: Fraction) -> Fraction:
    """Return κ(α) = (1/α)(1 − 1/α)^(α−1), the share of δ of a classic threshold (theory 2.3)."""
    alpha = mp.mpf(order.numerator) / order.denominator
    return Fraction(mp.nstr((1 - 1 / alpha) ** (alpha - 1) / alpha, 48))


@cache
def predicate(text: str) -> Callable[[Mechanism], bool]:
    """Translate CEL to Python; a missing label raises `KeyError`."""
    python = "True" if text == "always" else text.replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", re.sub(r"labels\.(\w+)", r'labels["\1"]', python))
    python = re.sub(r"\bfalse\b", "False", re.sub(r"\btrue\b", "True", python))
    code = compile(python.strip(), text, "eval")
    names = {"__builtins__": {}, "size": len}
    return lambda m: bool(
        eval(code, names, {"attributes": m.attributes, "labels": m.labels, "mechanism": m.kind})
    )


def matches(rule: Rule, mechanism: Mechanism) -> bool:
    """Return whether the mechanism lies in the rule's scope."""
    return all(predicate(text)(mechanism) for text in rule.predicates)


@cache
def reads(texts: tuple[str, ...], attribute: str) -> bool:
    """Return whether a scope reads an attribute, which then cannot split it (theory 0.2, 6.1)."""
    without_names = [re.sub(r'"[\w-]+" in attributes', "", text) for text in texts]
    named = any(f'"{attribute}" in attributes' in text for text in texts)
    return named or any("attributes" in remaining for remaining in without_names)


def decide(
    policy: PolicyDict,
    rules: Iterable[Rule],
    past: Sequence[Mechanism],
    requested: Sequence[Mechanism],
) -> bool:
    """Return whether a release is allowed after earlier ones: no rule is exceeded with it."""
    return not any(is_exceeded(policy, rule, past, requested) for rule in rules)


def is_exceeded(
    policy: PolicyDict, rule: Rule, past: Sequence[Mechanism], requested: Sequence[Mechanism]
) -> bool:
    """Return whether the rule is exceeded in a block by the release and the earlier ones."""
    counted = [*requested] if rule.each_release else [*past, *requested]
    scope = [m for m in counted if matches(rule, m)]
    if not scope:
        return False
    return any(
        not fits(rule, [m.costs[rule.unit] for m in scope if touches(policy, rule, m, cell)])
        for cell in cells(policy, rule, scope)
    )


def fits(rule: Rule, costs: Sequence[Cost]) -> bool:
    """Return whether the δ-side and all certificates of one clause hold (theory 1.4)."""
    if rule.delta is None:
        return True
    if sum((delta for _, delta in costs), Fraction(0)) > rule.delta:
        return False
    return any(
        all(
            all(key in amounts for amounts, _ in costs)
            and sum((amounts[key] for amounts, _ in costs), Fraction(0)) <= limit
            for key, limit in clause.items()
        )
        for clause in rule.clauses
    )


def cells(policy: PolicyDict, rule: Rule, scope: Sequence[Mechanism]) -> set[tuple[Any, ...]]:
    """Return the blocks of a rule: partitions that it does not read, and its unit's period."""
    partitions = policy.get("schema", {}).get("partitions", {})
    values = [p["values"] for name, p in partitions.items() if not reads(rule.predicates, name)]
    period = policy["units"][rule.unit].get("period")
    times = {block(period, day) for m in scope for day in m.days or ()} | {None}
    return set(product(*values, times))


def touches(policy: PolicyDict, rule: Rule, mechanism: Mechanism, cell: tuple[Any, ...]) -> bool:
    """Return whether the mechanism reads a block; without a time it reads all of them."""
    partitions = policy.get("schema", {}).get("partitions", {})
    split = [name for name in partitions if not reads(rule.predicates, name)]
    for name, value in zip(split, cell, strict=False):
        if name in mechanism.where and value not in mechanism.where[name]:
            return False
    period = policy["units"][rule.unit].get("period")
    return mechanism.days is None or any(block(period, day) == cell[-1] for day in mechanism.days)


@cache
def block(period: str | None, day: date) -> object:
    """Return the block of a day; a unit without a period has one block."""
    if period is None:
        return None
    kinds = {"day": day, "week": day.isocalendar()[:2], "year": day.year}
    return kinds.get(period, (day.year, day.month))
