"""Strategies for policies and releases: small enough for the naive model, with many edge cases.

Costs are short decimals, so a release that just fits does so in the code and in the model.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

UNITS: dict[str, Any] = {
    "user": {},
    "user-month": {"period": "month"},
    "user-day": {"period": "day"},
    "user-week": {"period": "week"},
    "user-3-days": {"period": "sliding 3 days"},
}
#: Units of a policy; weeks and windows cross months. A release may leave out a single unit.
FEW: tuple[tuple[str, ...], ...] = (
    ("user", "user-month"),
    ("user",),
    ("user", "user-month", "user-day"),
    ("user", "user-week", "user-month"),
    ("user", "user-3-days"),
)
LABELS: dict[str, Any] = {
    "stage": {"values": ["final", "tuning"], "default": "final"},
    "deployment": {"values": ["standard", "closed"], "required": True},
    "purpose": {"values": ["research", "product"], "many": True},
    "team": {"values": ["ads", "maps"]},  # may be left out: then a predicate has no answer
}
BUDGETS: tuple[Any, ...] = (
    {"epsilon": 1},
    {"epsilon": 3},
    {"epsilon": 6},
    {"epsilon": 12},
    {"rho": 0.5},
    {"mu": 2},
)
PURE: tuple[Any, ...] = ({"epsilon": 2, "delta": 0}, {"epsilon": 4, "delta": 0})
STATED: tuple[Any, ...] = (*BUDGETS, {"renyi": {"2": 0.5, "8": 2}}, "unlimited")
#: Budgets of per-release rules: a Gaussian of σ 2 or 5 is within one of them by its loss
#: distribution only.
CAPS: tuple[Any, ...] = tuple({"epsilon": epsilon} for epsilon in (0.75, 0.95, 2.1, 2.5))
SCOPES = (
    "always",
    "always",
    '"a" in attributes',
    'labels.deployment == "standard"',
    '"research" in labels.purpose',
    'mechanism == "gaussian"',
)
Time = tuple[str | None, str | None]
#: None is static data. The days are close, so that they overlap; with a week across two months.
MEETING: tuple[Time | None, ...] = (
    None,
    ("2026-01-31", "2026-01-31"),
    ("2026-01-30", "2026-01-31"),
    ("2026-02-01", "2026-02-01"),
    ("2026-02-02", "2026-02-02"),
    ("2026-01-26", "2026-02-01"),
    *((("2026-01-30", "2026-02-02"),) * 2),
    ("2026-02-01", None),
    (None, "2026-01-31"),
)
COUNTRIES = ("AT", "CH", "DE")
COMMITS = ("whole", "less", "more", "dropped", "narrower", "elsewhere")
CORRECTIONS = ("other", "more", "more", "unit", "noise")
EDITS = ("other", "tighter", "looser", "unit", "unstable")


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """A policy set as plain values."""
    few = draw(st.sampled_from(FEW))
    extended = draw(st.integers(0, 2))
    # One set of notions per policy: with many notions, one of them always denies.
    palette = draw(st.sampled_from((BUDGETS[:4], BUDGETS[1:4], STATED, PURE, BUDGETS)))
    usable = [b for b in palette if b in BUDGETS or b in PURE or not extended]
    budget = st.sampled_from(usable)
    accounting: dict[str, Any] = {"delta": draw(st.sampled_from((1e-7, 1e-5)))}
    if draw(st.booleans()):
        accounting["orders"] = [4, 16.5, 64]
    if draw(st.booleans()):
        accounting["profile"] = "anchored"  # the model reads it as accounting defaults 3
    if rarely(draw, 4):
        accounting["uncovered"] = "allow"
    names = "abc" if draw(st.integers(0, 3)) else "abcd"
    attributes_by_name = {
        n: {"risk": r} for n, r in zip(names, ("high", "low", "low", "low"), strict=False)
    }
    policy: dict[str, Any] = {
        "dpolicy": 1,
        "accounting": accounting,
        "units": {name: UNITS[name] for name in few},
        "schema": {
            "categories": {"h": {"risk": "high"}},
            "attributes": {
                **attributes_by_name,
                "a": {"risk": "high", "member": ["h"]},
                "b": {"risk": "low", "weak": ["h"]},
            },
            "labels": LABELS,
        },
        "policies": [
            {
                "name": f"p{n}",
                "kind": "custom",
                "when": draw(st.sampled_from(SCOPES)) if n else "always",
                "unit": draw(st.sampled_from(few)),
                "budget": draw(budget),
            }
            for n in range(draw(st.integers(0, 1)), 3)
        ],
    }
    _add_partitions(draw, policy, budget)
    _add_more(draw, policy, few, budget)
    _add_extensions(draw, policy, extended)
    return policy


def _add_partitions(
    draw: st.DrawFn, policy: dict[str, Any], budget: st.SearchStrategy[Any]
) -> None:
    """Add up to two partitions; one may also be an attribute with a rule that reads it."""
    listed: dict[str, Any] = {"country": {"values": list(COUNTRIES)}}
    ranged: dict[str, Any] = {"age": {"from": 0, "to": 2}}
    if rarely(draw, 4):
        listed["country"]["stable"] = False
    if rarely(draw, 6):
        ranged["age"]["stable"] = False
    both = [{**listed, **ranged}, {**ranged, **listed}]
    policy["schema"]["partitions"] = draw(st.sampled_from([listed, *both, *both, ranged, {}]))
    if draw(st.booleans()):
        policy["schema"]["attributes"]["country"] = {"risk": "low"}
        about = {"name": "about", "kind": "custom", "when": '"country" in attributes'}
        unit = draw(st.sampled_from(list(policy["units"])))
        policy["policies"].append({**about, "unit": unit, "budget": draw(budget)})


def _add_more(
    draw: st.DrawFn, policy: dict[str, Any], few: tuple[str, ...], budget: st.SearchStrategy[Any]
) -> None:
    by_risk = {risk: draw(budget) for risk in ("low", "medium", "high")}
    bases = policy["policies"]
    if draw(st.booleans()):
        unit = draw(st.sampled_from(few))
        bases.append({"name": "per", "kind": "attribute", "unit": unit, "budgets": by_risk})
    if draw(st.booleans()):
        bases.append({"name": "cat", "kind": "category", "units": list(few), "budgets": by_risk})
    if rarely(draw, 10):
        team = {"name": "team", "kind": "custom", "when": 'labels.team == "ads"'}
        bases.append({**team, "unit": "user", "budget": draw(budget)})
    if draw(st.booleans()):
        cap = {"name": "cap", "kind": "custom", "when": draw(st.sampled_from(SCOPES))}
        limit = st.sampled_from(CAPS) if "profile" in policy["accounting"] else budget
        policy["each-release"] = [{**cap, "unit": "user", "budget": draw(limit)}]


def _add_extensions(draw: st.DrawFn, policy: dict[str, Any], count: int) -> None:
    contexts = (
        ("context", "standard", 'labels.deployment == "standard"'),
        ("tuning", "final", 'labels.stage == "final"'),
    )
    for name, setting, when in contexts[:count]:
        settings = [
            {"name": setting, "when": when, "budget": "same"},
            {"name": "any", "when": "always", "budget": draw(st.sampled_from(FUNCTIONS))},
        ]
        policy["policies"].append({"name": name, "kind": "extension", "settings": settings})


def rarely(draw: st.DrawFn, times: int) -> bool:
    """Return True about once in `times` draws. Hypothesis favours ends, so test the middle."""
    return draw(st.integers(0, times - 1)) == times // 2


FUNCTIONS: tuple[Any, ...] = ("same", {"times": 2}, {"plus": 1})


def scaled(policy: dict[str, Any], factor: Fraction) -> dict[str, Any]:
    """Return the policy with all budgets of its custom policies scaled."""

    def other(base: dict[str, Any]) -> dict[str, Any]:
        budget = base.get("budget")
        if not isinstance(budget, dict) or "renyi" in budget:
            return base
        grown = {k: float(v * factor) if k != "delta" else v for k, v in budget.items()}
        return {**base, "budget": grown}

    return {**policy, "policies": [other(base) for base in policy["policies"]]}


def unstable(policy: dict[str, Any]) -> dict[str, Any]:
    """Return the policy with all partitions unstable."""
    schema = policy["schema"]
    partitions = {
        n: {**partition, "stable": False} for n, partition in schema.get("partitions", {}).items()
    }
    return {**policy, "schema": {**schema, "partitions": partitions}}


def with_unit(policy: dict[str, Any], unit: str) -> dict[str, Any]:
    """Return the policy with one more unit and a rule for it."""
    rule = {"name": f"all-{unit}", "kind": "custom", "when": "always", "unit": unit}
    if any(base["name"] == rule["name"] for base in policy["policies"]):
        return policy
    bases = [{**rule, "budget": {"epsilon": 4}}, *policy["policies"]]
    return {**policy, "units": {**policy["units"], unit: UNITS[unit]}, "policies": bases}


def _decimals(*written: str) -> st.SearchStrategy[Fraction]:
    return st.sampled_from([Fraction(text) for text in written])


NOISE: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("declared"), "epsilon": _decimals("0.1", "0.1", "0.25", "0.5", "1")},
        optional={"delta": _decimals("1e-10", "2e-8")},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("declared"), "rho": _decimals("0.001", "0.01", "0.05", "0.125")}
    ),
    st.fixed_dictionaries({"kind": st.just("declared"), "mu": _decimals("0.1", "0.3", "0.5")}),
    st.fixed_dictionaries({"kind": st.just("gaussian"), "sigma": _decimals("2", "5", "20")}),
    st.fixed_dictionaries({"kind": st.just("laplace"), "scale": _decimals("1", "4", "10")}),
)


@st.composite
def mechanisms(draw: st.DrawFn) -> dict[str, Any]:
    """One mechanism of a release, as plain values."""
    noise = draw(NOISE)
    stated: dict[str, Any] = {}
    if not rarely(draw, 5):
        stated["unit"] = draw(st.sampled_from(("user", "user", "user", "user-month", "user-day")))
    if draw(st.booleans()):
        stated["additive"] = True
    stated |= draw(where_and_when(few_days=stated.get("unit") == "user-month"))
    if rarely(draw, 10):  # a stated curve is known for groups of one only
        noise = {"kind": "declared", "renyi": {"2": Fraction(1, 10), "8": Fraction(3, 10)}}
        stated = {"additive": True, "unit": "user"}
    return {"mechanism": noise, **stated, **draw(words())}


@st.composite
def where_and_when(draw: st.DrawFn, *, few_days: bool = False) -> dict[str, Any]:
    """Region and days; with `few_days` within one month, where group sizes are exact."""
    fields: dict[str, Any] = {}
    days = draw(st.sampled_from(MEETING[1:4] if few_days else MEETING))
    if days:
        fields["time"] = {k: day for k, day in zip(("from", "to"), days, strict=True) if day}
    shape = draw(st.sampled_from(("all", "all", "country", "country", "country", "age", "union")))
    if shape in ("country", "union"):
        fields["where"] = {"country": draw(COUNTRY)}
    if shape in ("age", "union"):
        first, last = draw(st.sampled_from(((0, 0), (1, 2), (0, 2), (1, 1))))
        if rarely(draw, 10):
            first, last = last + 1, first  # empty, or beyond the last value
        fields["where"] = {**fields.get("where", {}), "age": {"from": first, "to": last}}
    if shape == "union":  # it may overlap
        fields["where"] = [fields["where"], {"country": draw(COUNTRY)}]
    return fields


COUNTRY = st.one_of(
    st.sampled_from(COUNTRIES),
    st.sets(st.sampled_from(COUNTRIES), min_size=1).map(sorted),
)


def narrowed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a mechanism that reads one day, and the first box or one country."""
    where = fields.get("where", {"country": "AT"})
    box = where[0] if isinstance(where, list) else where
    time = fields.get("time", {})
    day = time.get("to") or time.get("from") or "2026-01-31"
    return {**fields, "where": box, "time": {"from": day, "to": day}}


def moved_to(fields: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    """Return a mechanism with another region; restatements for a month keep their days."""
    kept = fields.get("time") if fields.get("unit") == "user-month" else place.get("time")
    rest = {key: value for key, value in fields.items() if key not in ("where", "time")}
    return {**rest, **place, **({"time": kept} if kept else {})}


@st.composite
def words(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes and labels; sometimes an unknown one."""
    labels: dict[str, Any] = {"deployment": draw(st.sampled_from(("standard", "closed")))}
    for name in sorted(draw(st.sets(st.sampled_from(("stage", "purpose", "team"))))):
        value = draw(st.sampled_from(LABELS[name]["values"]))
        labels[name] = [value] if name == "purpose" else value
    if rarely(draw, 20):
        labels["colour"] = "red"
    attributes = draw(st.sets(st.sampled_from("abcd" if rarely(draw, 20) else "abc")))
    return {"attributes": sorted(attributes), "labels": labels}


BODIES = st.lists(mechanisms(), min_size=1, max_size=2)


def lessened(noise: dict[str, Any], factor: int) -> dict[str, Any]:
    """Return noise parameters that cost less if the factor is above one."""
    fields = dict(noise)
    for name in ("epsilon", "rho", "mu"):
        if name in fields:
            fields[name] = fields[name] / factor
    for name in ("sigma", "scale"):
        if name in fields:
            fields[name] = fields[name] * factor
    if "renyi" in fields:
        fields["renyi"] = {order: value / factor for order, value in fields["renyi"].items()}
    return fields
