"""A scenario and a seed → a workload like the paper's W4:All, in the form of the workload files.

Parameters are those that the published figures were made with ("as run"). Cost curves are computed
by our own cost functions, so they are a little tighter in places. A seed gives the same requests in
every scenario: their labels and attributes are drawn after everything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.evaluation.workload import ROUNDS, Workload, latest_month, parse_workload
from dpolicy.privacy.cost import single_run_bounds
from dpolicy.privacy.mechanisms.divergence_bounds import Curve, smallest_curve
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

ORDERS = (1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 16, 32, 64, 1e6, 1e10)
SLOTS = 204_800
#: A request every 20 minutes.
REQUESTS_A_ROUND = 7 * 24 * 3
MEAN_UTILITY = 1000
SAMPLING = (0.25, 1)
#: What a cost level contributes to the utility, whatever the mechanism.
LEVELS = {"low": 0.05, "mid": 0.2, "high": 0.75}

#: Mechanism → its parameter at each cost level: σ, b, or the probability of the truth.
NOISE = {
    "gaussian": ("97.82", "25.76", "7.235"),
    "laplace": ("100", "10", "4"),
    "sparse-vector": ("600", "60", "24"),
    "randomized-response": ("0.5025", "0.5250", "0.5622"),
    "dp-sgd": ("16.50", "4.447", "1.685"),
    "pate": ("97.82", "25.76", "7.235"),
}

#: Of the sparse vector technique: answers above the threshold. Of DP-SGD: steps, and batch rate.
CUTOFF, STEPS, BATCH = 5, 1000, Fraction(5, 1000)

#: Mechanism → the Beta distribution of the share of the slots that a request takes.
SHARES = {
    "gaussian": (1, 10),
    "laplace": (1, 10),
    "sparse-vector": (1, 0.5),
    "randomized-response": (1, 0.5),
    "dp-sgd": (2, 2),
    "pate": (2, 2),
}

#: S1: mechanisms of which a share is released as a black box.
LEARNING = ("dp-sgd", "pate")
BLACK_BOX = 0.8

#: S2: how many, the shares of their risks, the exponent of Zipf, and the chance of one more.
ATTRIBUTES, ATTRIBUTE_RISKS, ATTRIBUTE_ZIPF, MORE_ATTRIBUTES = 150, (0.8, 0.1, 0.1), 1.0, 0.75
CATEGORIES, CATEGORY_RISKS, CATEGORY_ZIPF, MORE_CATEGORIES = 10, (0.5, 0.4, 0.1), 0.1, 0.6
RISKS = ("low", "medium", "high")

#: S3: months of a request relative to the latest; that one has a third of all.
MONTHS = range(-4, 3)
MONTH_WEIGHTS = tuple(3 if month == 0 else 1 for month in MONTHS)


def generate_workload(scenario: str, seed: int) -> Workload:
    """The workload of a scenario and a seed: always the same."""
    return parse_workload(workload_document(scenario, seed))


def workload_document(scenario: str, seed: int) -> dict[str, Any]:
    """The same as plain values, as a workload file has them."""
    if scenario not in _LABELLING:
        raise OperationRejected(f"no scenario `{scenario}`; one of {', '.join(_LABELLING)}")
    rng = Random(seed)
    requests = _requests(rng)
    categories, attributes = _LABELLING[scenario](requests, rng)
    return {
        "scenario": scenario,
        "origin": f"made with our own generator, seed {seed}",
        "orders": list(ORDERS),
        "partition": {"slot": {"from": 0, "to": SLOTS - 1}},
        "categories": categories,
        "attributes": attributes,
        "mechanisms": [dict(said) for said in mechanisms()],
        "requests": requests,
    }


@lru_cache(maxsize=1)
def mechanisms() -> tuple[Mapping[str, Any], ...]:
    """The 36 mechanisms with their Rényi curves: each of six at three levels and two rates."""
    return tuple(
        {
            "name": name,
            "level": level,
            "noise": noise,
            "sampling": rate,
            "renyi": [curve(order) for order in ORDERS],
        }
        for name, noises in NOISE.items()
        for level, noise in zip(LEVELS, noises, strict=True)
        for rate in SAMPLING
        for curve in [_curve(name, Fraction(noise), Fraction(rate))]
    )


def _curve(name: str, noise: Fraction, rate: Fraction) -> Curve:
    """The Rényi divergence of a mechanism on a Poisson sample."""
    mechanism, problems = parse_mechanism(_fields(name, noise, rate))
    if mechanism is None:
        raise problems[0]
    one, times = (
        smallest_curve(single_run_bounds(mechanism, 1, NeighbouringRelation.ADD_REMOVE)),
        mechanism.run_count,
    )
    return lambda order: times * one(order)


def _fields(name: str, noise: Fraction, rate: Fraction) -> Mapping[str, object]:
    sample = {"sampling-rate": rate}
    match name:
        case "laplace":
            return {"kind": name, "scale": noise, **sample}
        case "sparse-vector":  # b for the threshold, and for each of the answers above it
            split = {"epsilon-threshold": 1 / noise, "epsilon-queries": CUTOFF / noise}
            return {"kind": name, "cutoff": CUTOFF, **split, **sample}
        case "randomized-response":
            return {"kind": name, "truth": noise, **sample}
        case "dp-sgd":  # each step draws its batch from a sample of its own
            batch = {"sampling-rate": rate * BATCH}
            return {"kind": name, "noise-multiplier": noise, "steps": STEPS, **batch}
        case _:  # as run, the queries of PATE are one Gaussian with their effective σ
            return {"kind": "gaussian", "sigma": noise, **sample}


def _requests(rng: Random) -> list[dict[str, Any]]:
    """All but labels and attributes, in order of arrival."""
    known = mechanisms()
    requests: list[dict[str, Any]] = []
    worths: list[int] = []
    time = rng.expovariate(REQUESTS_A_ROUND)
    while time < len(ROUNDS):
        number = rng.randrange(len(known))
        requests.append(
            {
                "id": len(requests),
                "round": ROUNDS[math.floor(time)],
                "mechanism": number,
                "ranges": _ranges(rng, SHARES[known[number]["name"]]),
            }
        )
        worths.append(_worth(rng, known[number]))
        time += rng.expovariate(REQUESTS_A_ROUND)
    total = sum(worths)
    for request, worth in zip(requests, worths, strict=True):
        request["utility"] = MEAN_UTILITY * len(worths) * worth // total
        request["attributes"] = ["a0"]
        request["deployment"] = "standard"
    return requests


def _ranges(rng: Random, share: tuple[float, float]) -> list[list[int]]:
    """A run of slots around a uniform centre; past an end it goes on at the other."""
    half = round(rng.betavariate(*share) * SLOTS / 2)
    centre = rng.randrange(SLOTS)
    low, high = centre - half, centre + half
    if high - low + 1 >= SLOTS:
        return [[0, SLOTS - 1]]
    if low < 0:
        return [[0, high], [low + SLOTS, SLOTS - 1]]
    if high >= SLOTS:
        return [[0, high - SLOTS], [low, SLOTS - 1]]
    return [[low, high]]


def _worth(rng: Random, mechanism: Mapping[str, Any]) -> int:
    """Y = A·L²·K in thousandths, at least one of them."""
    level = LEVELS[mechanism["level"]]
    worth: float = rng.betavariate(0.25, 0.25) * level**2 * mechanism["sampling"]
    return max(1, math.floor(1000 * worth))


#: Categories and attributes of a schema.
_Schema = tuple[dict[str, Any], dict[str, Any]]


def _context(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S1: most of what learns is a black box."""
    known = mechanisms()
    for request in requests:
        if known[request["mechanism"]]["name"] in LEARNING and rng.random() < BLACK_BOX:
            request["deployment"] = "black-box"
    return {}, {"a0": {"risk": "low"}}


def _scope(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S2: categories and attributes of random risk; requests choose popular attributes more."""
    categories = {
        f"cat_{n}": {"risk": risk}
        for n, risk in enumerate(rng.choices(RISKS, CATEGORY_RISKS, k=CATEGORIES))
    }
    popular = _popularity(categories, CATEGORY_ZIPF)
    attributes: dict[str, Any] = {}
    for n, risk in enumerate(rng.choices(RISKS, ATTRIBUTE_RISKS, k=ATTRIBUTES)):
        member, *others = _drawn(rng, popular, MORE_CATEGORIES)
        facts: dict[str, Any] = {"risk": risk, "member": [member]}
        for category in others:
            facts.setdefault(rng.choice(("strong", "weak")), []).append(category)
        attributes[f"a{n}"] = facts
    popular = _popularity(attributes, ATTRIBUTE_ZIPF)
    for request in requests:
        request["attributes"] = _drawn(rng, popular, MORE_ATTRIBUTES)
    return categories, attributes


def _popularity(items: Mapping[str, Mapping[str, Any]], exponent: float) -> dict[str, float]:
    """Zipf with the ranks of all spread evenly over the names of each risk."""
    by_risk: dict[str, list[str]] = {}
    for name, facts in items.items():
        by_risk.setdefault(facts["risk"], []).append(name)
    return {
        name: (1 + rank * len(items) / len(names)) ** -exponent
        for names in by_risk.values()
        for rank, name in enumerate(names)
    }


def _drawn(rng: Random, popular: Mapping[str, float], more: float) -> list[str]:
    """One name and, each time with chance `more`, another."""
    left = dict(popular)
    drawn: list[str] = []
    while left and (not drawn or rng.random() < more):
        (name,) = rng.choices(list(left), list(left.values()))
        del left[name]
        drawn.append(name)
    return drawn


def _time(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S3: every request names a month around the latest, and half read data that has a time."""
    for request in requests:
        request["month"] = latest_month(request["round"]) + rng.choices(MONTHS, MONTH_WEIGHTS)[0]
        request["attributes"] = ["a0", "a1"] if rng.random() < 0.5 else ["a0"]
    return {}, {"a0": {"risk": "low"}, "a1": {"risk": "medium"}}


def _whole(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """All at once: contexts, scopes, and a month for every request."""
    _context(requests, rng)
    _time(requests, rng)
    return _scope(requests, rng)


_LABELLING = {"context": _context, "scope": _scope, "time": _time, "whole": _whole}
