"""Random policy sets as plain dicts, and random releases for them (trust R9).

The sets are small, so that all distinguishable mechanisms can be listed. They have many features
that break naive pruning: equivalent and contradictory predicates, equal budgets, mixed notions,
incomparable units, and partitions that are also attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from itertools import chain, combinations, product
from math import floor, prod
from random import Random
from typing import Any

from tests.properties.theorem_a import covers_unit
from tests.reference.rules import GRID, Cost, Key, Mechanism, PolicyDict, Rule, number

RISKS = ("low", "medium", "high")
LEVELS = ("member", "strong", "weak")
#: Largest number of rules in a section: more rules are slow to check and find no more problems.
MAX_RULES = 32
UNITS: dict[str, dict[str, Any]] = {
    "user": {},
    "user-year": {"period": "year"},
    "user-month": {"period": "month"},
    "user-week": {"period": "week"},
    "user-day": {"period": "day"},
    "household": {"covers": ["user"]},
}
LABELS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "stage": (
        {"values": ["final", "tuning"], "default": "final"},
        (
            'labels.stage == "final"',
            'labels.stage != "tuning"',
            'labels.stage == "tuning"',
            'labels.stage == "final" && labels.stage == "tuning"',
            'labels.stage == "final" || labels.stage == "tuning"',
        ),
    ),
    "deployment": (
        {"values": ["standard", "closed", "open"], "required": True},
        (
            'labels.deployment == "standard"',
            'labels.deployment in ["standard", "closed"]',
            'labels.deployment != "open"',
            '!(labels.deployment == "open")',
        ),
    ),
    "purpose": (
        {"values": ["research", "product"], "many": True},
        (
            '"research" in labels.purpose',
            "size(labels.purpose) > 1",
            '"research" in labels.purpose && "product" in labels.purpose',
        ),
    ),
    # The label may be missing: a predicate then fails, and the release is denied.
    "team": ({"values": ["ads", "maps"]}, ('labels.team == "ads"', 'labels.team != "maps"')),
}
#: One kind more than the predicates name, so that `!= "declared"` is not `== "gaussian"`.
KINDS = ("declared", "gaussian", "laplace")
KIND_PREDICATES = ('mechanism == "gaussian"', 'mechanism != "declared"')
_PARTS = (1, 1, Fraction(2, 3), Fraction(2, 3), Fraction(1, 2))
FIRST_DAY = date(2026, 1, 26)  # a Monday whose week ends in February


@dataclass(frozen=True)
class World:
    """Everything that several policy sets share, except the policies."""

    head: PolicyDict
    predicates: tuple[str, ...]
    facts: tuple[Mechanism, ...]
    #: Units, each after the units that cover it, with the names of those.
    larger: tuple[tuple[str, tuple[str, ...]], ...]


def random_world(random: Random) -> World:
    """Return random units, schema and accounting, with predicates that fit them."""
    attributes = "abcdef"[: random.choice((1, 2, 2, 3, 3, 4, 5, 6))]
    labels = random.sample(sorted(LABELS), random.choice((0, 1, 1, 2)))
    head = {
        "dpolicy": 1,
        "accounting": _accounting(random),
        "units": _units(random),
        "schema": {
            **_schema(random, attributes),
            "labels": {name: LABELS[name][0] for name in labels},
            "partitions": _partitions(random, attributes),
        },
    }
    predicates = ["always", *_attribute_predicates(random, attributes)]
    predicates += chain.from_iterable(LABELS[name][1] for name in labels)
    kinds = KINDS if random.random() < 0.2 and len(labels) < 2 else KINDS[:1]
    predicates += KIND_PREDICATES if len(kinds) > 1 else ()
    # CEL ignores an error on one side of `||` and `&&`; the Python of the twin does not.
    failing = ("||", "labels.team", "labels.purpose")
    plain = [text for text in predicates[1:] if not any(part in text for part in failing)]
    conjunctions = [f"{a} && {b}" for a, b in combinations(plain, 2)]
    predicates += random.sample(conjunctions, min(len(conjunctions), 2))
    return World(
        head, tuple(predicates), tuple(_all_facts(attributes, labels, kinds)), _larger(head)
    )


def _larger(head: PolicyDict) -> tuple[tuple[str, tuple[str, ...]], ...]:
    names = sorted(head["units"])
    above = {u: tuple(v for v in names if u != v and covers_unit(head, u, v)) for u in names}
    return tuple((u, above[u]) for u in sorted(names, key=lambda name: len(above[name])))


def _accounting(random: Random) -> dict[str, Any]:
    accounting: dict[str, Any] = {"delta": random.choice((1e-7, 1e-5))}
    accounting["relation"] = random.choice(("add-remove", "change", "change", "replace"))
    if random.random() < 0.4:
        accounting["require"] = "additive"
    if random.random() < 0.3:
        into = random.choice(("month", "year"))
        accounting["collapse"] = {"after": "24 months", "into": into}
    accounting["orders"] = random.choice(("default", [2, 8], [4, 16.5, 64]))
    return accounting


def _units(random: Random) -> dict[str, Any]:
    names = {"user", *random.sample(sorted(UNITS), random.choice((1, 2, 3)))}
    units = {name: dict(UNITS[name]) for name in sorted(names)}
    for unit in units.values():
        if random.random() < 0.25:
            unit["relation"] = random.choice(("add-remove", "change"))
    return units


def _schema(random: Random, attributes: str) -> dict[str, Any]:
    categories = [f"c{n}" for n in range(random.choice((0, 1, 1, 2, 3, 4)))]
    definitions: dict[str, Any] = {}
    for name in attributes:
        definitions[name] = {"risk": random.choice(RISKS)}
        for category in categories:
            if random.random() < 0.5:
                definitions[name].setdefault(random.choice(LEVELS), []).append(category)
    return {
        "attributes": definitions,
        "categories": {name: {"risk": random.choice(RISKS)} for name in categories},
    }


def _partitions(random: Random, attributes: str) -> dict[str, Any]:
    kind = random.random()
    if kind < 0.4:
        return {}
    name = random.choice(attributes) if kind < 0.9 else "region"
    return {name: {"values": ["x", "y"]}}


def _attribute_predicates(random: Random, attributes: str) -> list[str]:
    a, b = random.choice(attributes), random.choice(attributes)
    return [
        f'"{a}" in attributes',
        f'"{a}" in attributes || "{b}" in attributes',
        f'"{b}" in attributes || "{a}" in attributes',
        f'"{a}" in attributes && "{b}" in attributes',
        f'!("{a}" in attributes)',
        f'"{a}" in attributes && !("{a}" in attributes)',
    ]


def _all_facts(attributes: str, labels: Sequence[str], kinds: Sequence[str]) -> list[Mechanism]:
    """Return one mechanism for every input that a predicate can distinguish."""
    sizes = range(len(attributes) + 1)
    subsets = [frozenset(s) for size in sizes for s in combinations(attributes, size)]
    options = [[(name, value) for value in _values(name)] for name in labels]
    return [
        Mechanism(used, {name: value for name, value in chosen if value is not None}, kind)
        for used, chosen, kind in product(subsets, list(product(*options)), kinds)
    ]


def _values(label: str) -> list[Any]:
    definition = LABELS[label][0]
    if definition.get("many"):
        sizes = range(1, len(definition["values"]) + 1)
        lists = [tuple(sorted(s)) for n in sizes for s in combinations(definition["values"], n)]
        return [*lists, None]
    missing = [] if "default" in definition or "required" in definition else [None]
    return [*definition["values"], *missing]


def random_policies(random: Random, world: World) -> PolicyDict:
    """Return a policy set of a world, with at most `MAX_RULES` rules per section."""
    while True:
        policy = {**world.head, "policies": _section(random, world, "p")}
        if random.random() < 0.3:
            policy["each-release"] = _section(random, world, "e")
        counts = [rule_count(policy, s) for s in ("policies", "each-release") if s in policy]
        if all(count <= MAX_RULES for count in counts):
            return policy


def rule_count(policy: PolicyDict, section: str) -> int:
    """Return |R| = units × (custom + attributes + categories × levels) × settings (language 1)."""
    schema, policies = policy["schema"], policy.get(section, [])
    scopes = {
        "custom": 1,
        "attribute": len(schema["attributes"]),
        "category": len(schema["categories"]) * len(LEVELS),
    }
    bases = [p for p in policies if p["kind"] != "extension"]
    settings = prod(len(p["settings"]) for p in policies if p["kind"] == "extension")
    return settings * sum(len(p.get("units", [0])) * scopes[p["kind"]] for p in bases)


def _section(random: Random, world: World, prefix: str) -> list[Any]:
    """Return base policies and extensions; budget functions only if all budgets are one number."""
    functions_allowed = random.random() < 0.6
    palette = [_budget(random, not functions_allowed) for _ in range(random.choice((1, 2, 3, 5)))]
    policies = [
        _base(random, world, f"{prefix}{n}", palette, functions_allowed)
        for n in range(random.choice((1, 2, 2, 3, 4)))
    ]
    for n in range(random.choice((0, 0, 1, 1, 2, 3))):
        settings = [
            {
                "name": f"s{k}",
                "when": "always" if k == 0 else random.choice(world.predicates),
                "budget": _function(random) if functions_allowed else "same",
            }
            for k in range(random.choice((1, 2, 2, 3)))
        ]
        random.shuffle(settings)
        policies.append({"name": f"{prefix}x{n}", "kind": "extension", "settings": settings})
    return policies


def _base(
    random: Random, world: World, name: str, palette: Sequence[Any], functions_allowed: bool
) -> dict[str, Any]:
    all_units = sorted(world.head["units"])
    units = random.sample(all_units, min(len(all_units), random.choice((1, 1, 2, 3))))
    kind = random.choice(("custom", "custom", "attribute", "category"))
    base: dict[str, Any] = {"name": name, "kind": kind, "units": units}
    if kind == "custom":
        return {**base, "when": random.choice(world.predicates), "budget": random.choice(palette)}
    base["budgets"] = {risk: random.choice(palette) for risk in RISKS}
    names = sorted(world.head["schema"]["attributes" if kind == "attribute" else "categories"])
    if names and random.random() < 0.4:
        base["except"] = {random.choice(names): random.choice(palette)}
    if kind == "category" and functions_allowed and random.random() < 0.6:
        base["levels"] = {random.choice(LEVELS): _function(random)}
    return base


def _budget(random: Random, renyi: bool) -> Any:
    kind = random.choice("eeeeeerrmu" + "nn" * renyi)
    if kind == "e":
        budget = {"epsilon": random.choice((1, 2, 3, 5, 5.5, 7))}
        delta = random.choice((None, None, 0, 1e-12, 1e-7, 1e-5))
        return budget if delta is None else {**budget, "delta": delta}
    if kind == "r":
        return {"rho": random.choice((0.1, 0.5, 1))}
    if kind == "m":
        return {"mu": random.choice((0.5, 1, 1.5))}
    if kind == "n":
        orders = random.sample(("2", "8", "16.5", "64"), random.choice((1, 1, 2)))
        return {"renyi": {order: random.choice((0.5, 1, 2)) for order in orders}}
    return "unlimited"


def _function(random: Random) -> Any:
    return random.choice(
        (
            "same",
            "same",
            {"times": 2},
            {"times": 0.5},
            {"plus": 1},
            {"through": [[0, 0], [1, 2], [5, 7]], "beyond": "extend"},
        )
    )


def certificates(policy: PolicyDict, rules: Sequence[Rule]) -> list[Key]:
    """Return every certificate of the rules and of the grid."""
    keys: dict[Key, None] = dict.fromkeys(("pure", "rho", "mu"))
    orders = policy["accounting"]["orders"]
    keys.update(dict.fromkeys(GRID if orders == "default" else map(number, orders)))
    keys.update(dict.fromkeys(key for r in rules for clause in r.clauses for key in clause))
    return list(keys)


def random_mechanism(
    random: Random, world: World, rules: Sequence[Rule], keys: Sequence[Key], facts: Mechanism
) -> Mechanism:
    """Return a mechanism with a region and consistent costs; often one that just fits a rule."""
    partitions = world.head["schema"]["partitions"]
    where = {p: frozenset(random.choice("xy")) for p in partitions if random.random() < 0.8}
    used = facts.attributes | (where.keys() & world.head["schema"]["attributes"].keys())
    costs: dict[str, Cost] = {}
    target_rule = random.choice(rules) if rules and random.random() < 0.7 else None
    for unit, larger in world.larger:
        amounts, delta = _cost(random, keys, target_rule)
        for limits, delta_limit in (costs[name] for name in larger if name in costs):
            amounts = _elementwise_min(amounts, limits)
            delta = min(delta, delta_limit)
        costs[unit] = amounts, delta
    return Mechanism(used, facts.labels, facts.kind, facts.by, costs, where, _days(random))


def _cost(random: Random, keys: Sequence[Key], target_rule: Rule | None) -> Cost:
    step = Fraction(1, 1000)
    chosen = [key for key in keys if random.random() < 0.6]
    amounts = {key: random.choice((0, 100, 500, 1000, 2500)) * step for key in chosen}
    delta = random.choice((0, 0, 0, 1, 40)) * Fraction(1, 10**9)
    if target_rule is not None and target_rule.clauses:
        for key, limit in random.choice(target_rule.clauses).items():
            # Two costs of ⅔ fit separate blocks, but not the same block.
            amounts[key] = floor(limit * random.choice(_PARTS) / step) * step
        if target_rule.delta and random.random() < 0.5:
            delta = floor(target_rule.delta * 10**15) * Fraction(1, 10**15)
    return amounts, delta


def _elementwise_min(a: Mapping[Key, Fraction], b: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    return {key: min(x for x in (a.get(key), b.get(key)) if x is not None) for key in {*a, *b}}


def _days(random: Random) -> frozenset[date] | None:
    if random.random() < 0.4:
        return None
    start, length = random.randrange(0, 45), random.choice((1, 1, 3, 30))
    return frozenset(FIRST_DAY + timedelta(days=start + n) for n in range(length))
