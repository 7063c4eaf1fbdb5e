"""Random policies and releases that aim at the conditions of pruning (theory 1.5).

A random policy rarely has rules that imply each other, and a random release is mostly denied by all
of them. Here the rules share a notion and have nearly equal budgets, their units are ordered or
nearly so, and each release costs a simple part of the budget of one rule. So a third to a half of
the releases are allowed, and a rule that is pruned wrongly changes a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from fractions import Fraction
from random import Random
from typing import Any

PolicyDict = dict[str, Any]
Body = dict[str, Any]

PERIODS: dict[str, str | None] = {
    "user": None,
    "household": None,
    "user-day": "day",
    "user-week": "week",
    "user-month": "month",
    "user-quarter": "quarter",
    "user-year": "year",
    "user-31": "sliding 31 days",
    "user-366": "sliding 366 days",
    "household-month": "month",
}
#: Units of a policy: each list has an order, which `collapse` or a relation may take away.
UNIT_SETS = (
    ("user-day", "user-week"),
    ("user-day", "user-week", "user"),
    ("user-month", "user-31"),
    ("user-day", "user-month", "user-quarter"),
    ("user-month", "user-year", "user-366"),
    ("user-week", "user-366"),
    ("user", "user-month"),
    ("user", "user-day", "user-month"),
    ("user", "household"),
    ("user-month", "household-month", "user", "household"),
)
#: Predicates, each inside the next; the second attribute is also a partition.
SCOPES = (
    '"a" in attributes && "country" in attributes',
    '"country" in attributes',
    '"a" in attributes || "country" in attributes',
    "always",
)
BUDGETS = (Fraction(1), Fraction(1), Fraction(1), Fraction(1), Fraction(3, 2))
#: Parts of a budget: two of the first fit into one block, two of the others fit into two blocks.
PARTS = (
    Fraction(1, 2),
    Fraction(1, 2),
    Fraction(2, 3),
    Fraction(1),
    Fraction(1, 4),
    Fraction(1, 4),
)
FIRST_SUBMISSION, OLD_DAYS, NEW_DAYS = date(2023, 6, 1), date(2020, 1, 1), date(2023, 5, 1)


#: Releases, each with the day on which it is submitted.
Story = tuple[tuple[date, Body], ...]


def random_story(random: Random, policy: PolicyDict, releases: int = 8) -> Story:
    """Return releases that each cost a part of the budget of a rule.

    In half of the stories all releases read the same attributes in the same country.
    """
    focus = _random_place(random) if random.random() < 0.5 else None
    submitted = FIRST_SUBMISSION
    story = []
    for number in range(releases):
        submitted += timedelta(days=random.choice((0, 0, 20, 200)))
        places = [focus or _random_place(random) for _ in range(random.choice((1, 1, 1, 2)))]
        mechanisms = [_random_mechanism(random, policy, place) for place in places]
        story.append((submitted, {"release": f"r{number}", "mechanisms": mechanisms}))
    return tuple(story)


def random_policy(random: Random) -> PolicyDict:
    """Return a policy of two to four rules; a third have `collapse`."""
    units = random.choice(UNIT_SETS)
    accounting: dict[str, Any] = {"delta": 1e-5, "relation": "change"}
    if random.random() < 0.4:
        into = random.choice(("month", "month", "quarter", "year"))
        accounting["collapse"] = {"after": "24 months", "into": into}
    elif random.random() < 0.5:
        accounting["relation"] = "add-remove"
    if random.random() < 0.25:
        accounting["require"] = "additive"
    head: PolicyDict = {
        "dpolicy": 1,
        "accounting": accounting,
        "units": {name: _unit(name) for name in dict.fromkeys(("user", *units))},
        "schema": {
            "attributes": {"a": {"risk": "low"}, "country": {"risk": "low"}},
            "partitions": {"country": {"values": ["AT", "CH"], "of": "user"}},
        },
    }
    notion = random.choice(("pure", "rho", "approximate"))
    owners = [*units, random.choice(units)][: random.choice((2, 3, 4))]
    head["policies"] = [random_rule(random, f"p{n}", (u,), notion) for n, u in enumerate(owners)]
    if all(rule["when"] != "always" for rule in head["policies"]):
        head["policies"][0]["when"] = "always"
    if random.random() < 0.2:
        head["each-release"] = [
            random_rule(random, f"e{n}", (unit,), notion) for n, unit in enumerate(units)
        ]
    return head


def _unit(name: str) -> dict[str, Any]:
    entity, period = name.split("-")[0], PERIODS[name]
    if period is not None:
        return {"period": period, "of": entity}
    return {"covers": ["user"]} if name == "household" else {}


def random_rule(random: Random, name: str, units: tuple[str, ...], notion: str) -> dict[str, Any]:
    """Return a rule with a budget of about 1 in the notion of its policy."""
    amount = float(random.choice(BUDGETS))
    budget = {
        "pure": {"epsilon": amount, "delta": 0},
        "rho": {"rho": amount},
        "approximate": {"epsilon": amount},
    }[notion]
    scope = random.choice(SCOPES) if random.random() < 0.5 else "always"
    unit = random.choice(units)
    return {"name": name, "kind": "custom", "when": scope, "unit": unit, "budget": budget}


def _random_place(random: Random) -> dict[str, Any]:
    """Return the attributes that a mechanism reads, and often one country."""
    place: dict[str, Any] = {"attributes": random.choice((["a"], ["country"], ["a", "country"]))}
    if random.random() < 0.7:
        place["where"] = [{"country": [random.choice(("AT", "CH"))]}]
    return place


def _random_mechanism(random: Random, policy: PolicyDict, place: Mapping[str, Any]) -> Body:
    """Return a mechanism that costs a part of the budget of some rule."""
    rule = random.choice(policy["policies"])
    notion = next(key for key in ("epsilon", "rho") if key in rule["budget"])
    amount = Fraction(rule["budget"][notion]) * random.choice(PARTS)
    parameters: dict[str, Any] = {"kind": "declared", notion: amount}
    if "delta" not in rule["budget"] and notion == "epsilon" and random.random() < 0.2:
        parameters["delta"] = Fraction(1, 10**7) * random.choice((1, 2, 4))
    unit = rule["unit"] if random.random() < 0.5 else random.choice(list(policy["units"]))
    mechanism: dict[str, Any] = {
        **place,
        "mechanism": parameters,
        "unit": unit,
        "relation": policy["accounting"]["relation"],
    }
    # A mechanism that reads days of several blocks can lose a part of a larger unit.
    if PERIODS[unit] is not None or random.random() < 0.5:
        mechanism["time"] = _random_days(random)
    if policy["accounting"].get("require") == "additive":
        mechanism["additive"] = True
    return mechanism


def _random_days(random: Random) -> dict[str, str]:
    """Return one to four days, recent ones or days that are old enough to be merged."""
    first = random.choice((OLD_DAYS, OLD_DAYS, NEW_DAYS)) + timedelta(random.randrange(70))
    last = first + timedelta(random.choice((0, 0, 0, 3)))
    return {"from": first.isoformat(), "to": last.isoformat()}


def change_rules(random: Random, policy: PolicyDict) -> PolicyDict:
    """Return the policy with one or two rules added, removed or changed."""
    rules = list(policy["policies"])
    units = tuple(dict.fromkeys(rule["unit"] for rule in rules)) + tuple(policy["units"])
    budget = rules[0]["budget"]
    notion = "rho" if "rho" in budget else "pure" if "delta" in budget else "approximate"
    for number in range(random.choice((1, 1, 2))):
        position = random.randrange(len(rules))
        drawn = random_rule(random, f"q{number}", units, notion)
        match random.choice(("add", "add", "budget", "scope", "unit", "remove")):
            case "add":
                rules.append(drawn)
            case "budget":
                rules[position] = {**rules[position], "budget": drawn["budget"]}
            case "scope":
                rules[position] = {**rules[position], "when": drawn["when"]}
            case "unit":
                rules[position] = {**rules[position], "unit": drawn["unit"]}
            case _ if len(rules) > 1:
                rules.pop(position)
    return {**policy, "policies": rules}
