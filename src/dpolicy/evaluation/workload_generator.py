"""Generator of workloads like the paper's W4:All, in the format of the workload files.

The parameters are those behind the published figures ("as run"). Cost curves come from the cost
functions of this package, so some are slightly tighter. A seed gives the same requests in every
scenario, because labels and attributes are drawn after everything else.
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
#: One request every 20 minutes on average.
REQUESTS_A_ROUND = 7 * 24 * 3
MEAN_UTILITY = 1000
SAMPLING = (0.25, 1)
#: Factor of a cost level in the utility, for every mechanism.
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

#: Answers above the threshold (sparse vector technique); steps and batch rate (DP-SGD).
CUTOFF, STEPS, BATCH = 5, 1000, Fraction(5, 1000)

#: Mechanism → parameters of the Beta distribution of the share of slots of a request.
SHARES = {
    "gaussian": (1, 10),
    "laplace": (1, 10),
    "sparse-vector": (1, 0.5),
    "randomized-response": (1, 0.5),
    "dp-sgd": (2, 2),
    "pate": (2, 2),
}

#: S1: mechanisms that train models, and the share of them that is deployed as a black box.
LEARNING = ("dp-sgd", "pate")
BLACK_BOX = 0.8

#: S2: number, shares of the risk levels, Zipf exponent, and probability of one more.
ATTRIBUTES, ATTRIBUTE_RISKS, ATTRIBUTE_ZIPF, MORE_ATTRIBUTES = 150, (0.8, 0.1, 0.1), 1.0, 0.75
CATEGORIES, CATEGORY_RISKS, CATEGORY_ZIPF, MORE_CATEGORIES = 10, (0.5, 0.4, 0.1), 0.1, 0.6
RISKS = ("low", "medium", "high")

#: S3: months of a request relative to the latest, which has a third of all requests.
MONTHS = range(-4, 3)
MONTH_WEIGHTS = tuple(3 if month == 0 else 1 for month in MONTHS)


def generate_workload(scenario: str, seed: int) -> Workload:
    """Generate the workload of a scenario; the same seed gives the same workload."""
    return parse_workload(workload_document(scenario, seed))


def workload_document(scenario: str, seed: int) -> dict[str, Any]:
    """Generate a workload as the JSON values of a workload file."""
    if scenario not in _LABELLING:
        raise OperationRejected(
            f"unknown scenario `{scenario}`; available: {', '.join(_LABELLING)}"
        )
    rng = Random(seed)
    requests = _draw_requests(rng)
    categories, attributes = _LABELLING[scenario](requests, rng)
    return {
        "scenario": scenario,
        "origin": f"made with our own generator, seed {seed}",
        "orders": list(ORDERS),
        "partition": {"slot": {"from": 0, "to": SLOTS - 1}},
        "categories": categories,
        "attributes": attributes,
        "mechanisms": [dict(fields) for fields in mechanisms()],
        "requests": requests,
    }


@lru_cache(maxsize=1)
def mechanisms() -> tuple[Mapping[str, Any], ...]:
    """Return the 36 mechanisms with Rényi curves: six kinds × three levels × two sampling rates."""
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
    """Return the Rényi divergence of a mechanism on a Poisson sample, by order."""
    mechanism, problems = parse_mechanism(_mechanism_fields(name, noise, rate))
    if mechanism is None:
        raise problems[0]
    bounds = single_run_bounds(mechanism, 1, NeighbouringRelation.ADD_REMOVE)
    single_run, count = smallest_curve(bounds), mechanism.run_count
    return lambda order: count * single_run(order)


def _mechanism_fields(name: str, noise: Fraction, rate: Fraction) -> Mapping[str, object]:
    sample = {"sampling-rate": rate}
    match name:
        case "laplace":
            return {"kind": name, "scale": noise, **sample}
        case "sparse-vector":  # noise b for the threshold and for each answer above it
            split = {"epsilon-threshold": 1 / noise, "epsilon-queries": CUTOFF / noise}
            return {"kind": name, "cutoff": CUTOFF, **split, **sample}
        case "randomized-response":
            return {"kind": name, "truth": noise, **sample}
        case "dp-sgd":  # each step draws its batch from a separate sample
            batch = {"sampling-rate": rate * BATCH}
            return {"kind": name, "noise-multiplier": noise, "steps": STEPS, **batch}
        case _:  # as run, all PATE queries are one Gaussian with effective σ
            return {"kind": "gaussian", "sigma": noise, **sample}


def _draw_requests(rng: Random) -> list[dict[str, Any]]:
    """Draw requests in order of arrival, with default labels and attributes."""
    all_mechanisms = mechanisms()
    requests: list[dict[str, Any]] = []
    raw_utilities: list[int] = []
    time = rng.expovariate(REQUESTS_A_ROUND)
    while time < len(ROUNDS):
        number = rng.randrange(len(all_mechanisms))
        requests.append(
            {
                "id": len(requests),
                "round": ROUNDS[math.floor(time)],
                "mechanism": number,
                "ranges": _draw_ranges(rng, SHARES[all_mechanisms[number]["name"]]),
            }
        )
        raw_utilities.append(_draw_utility(rng, all_mechanisms[number]))
        time += rng.expovariate(REQUESTS_A_ROUND)
    total = sum(raw_utilities)
    for request, raw_utility in zip(requests, raw_utilities, strict=True):
        request["utility"] = MEAN_UTILITY * len(raw_utilities) * raw_utility // total
        request["attributes"] = ["a0"]
        request["deployment"] = "standard"
    return requests


def _draw_ranges(rng: Random, share: tuple[float, float]) -> list[list[int]]:
    """Draw a run of slots around a uniform centre; it wraps around at the ends."""
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


def _draw_utility(rng: Random, mechanism: Mapping[str, Any]) -> int:
    """Draw the utility A·L²·K in thousandths, at least 1."""
    level = LEVELS[mechanism["level"]]
    raw_utility: float = rng.betavariate(0.25, 0.25) * level**2 * mechanism["sampling"]
    return max(1, math.floor(1000 * raw_utility))


#: Categories and attributes of a schema, by name.
_Schema = tuple[dict[str, Any], dict[str, Any]]


def _label_context(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S1: mark most requests that train models as black boxes."""
    all_mechanisms = mechanisms()
    for request in requests:
        if all_mechanisms[request["mechanism"]]["name"] in LEARNING and rng.random() < BLACK_BOX:
            request["deployment"] = "black-box"
    return {}, {"a0": {"risk": "low"}}


def _label_scope(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S2: draw categories and attributes of random risk; popular attributes are more frequent."""
    categories = {
        f"cat_{n}": {"risk": risk}
        for n, risk in enumerate(rng.choices(RISKS, CATEGORY_RISKS, k=CATEGORIES))
    }
    weights = _zipf_weights(categories, CATEGORY_ZIPF)
    attributes: dict[str, Any] = {}
    for n, risk in enumerate(rng.choices(RISKS, ATTRIBUTE_RISKS, k=ATTRIBUTES)):
        member, *tied = _draw_names(rng, weights, MORE_CATEGORIES)
        properties: dict[str, Any] = {"risk": risk, "member": [member]}
        for category in tied:
            properties.setdefault(rng.choice(("strong", "weak")), []).append(category)
        attributes[f"a{n}"] = properties
    weights = _zipf_weights(attributes, ATTRIBUTE_ZIPF)
    for request in requests:
        request["attributes"] = _draw_names(rng, weights, MORE_ATTRIBUTES)
    return categories, attributes


def _zipf_weights(items: Mapping[str, Mapping[str, Any]], exponent: float) -> dict[str, float]:
    """Return Zipf weights; the names of each risk level get evenly spaced ranks of all names."""
    by_risk: dict[str, list[str]] = {}
    for name, properties in items.items():
        by_risk.setdefault(properties["risk"], []).append(name)
    return {
        name: (1 + rank * len(items) / len(names)) ** -exponent
        for names in by_risk.values()
        for rank, name in enumerate(names)
    }


def _draw_names(rng: Random, weights: Mapping[str, float], probability: float) -> list[str]:
    """Draw one name, and further names, each with the given probability."""
    remaining = dict(weights)
    selected: list[str] = []
    while remaining and (not selected or rng.random() < probability):
        (name,) = rng.choices(list(remaining), list(remaining.values()))
        del remaining[name]
        selected.append(name)
    return selected


def _label_time(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """S3: give every request a month near the latest; half of them read data that has a time."""
    for request in requests:
        request["month"] = latest_month(request["round"]) + rng.choices(MONTHS, MONTH_WEIGHTS)[0]
        request["attributes"] = ["a0", "a1"] if rng.random() < 0.5 else ["a0"]
    return {}, {"a0": {"risk": "low"}, "a1": {"risk": "medium"}}


def _label_all(requests: Sequence[dict[str, Any]], rng: Random) -> _Schema:
    """Combine S1, S2 and S3: contexts, scopes, and a month for every request."""
    _label_context(requests, rng)
    _label_time(requests, rng)
    return _label_scope(requests, rng)


_LABELLING = {
    "context": _label_context,
    "scope": _label_scope,
    "time": _label_time,
    "whole": _label_all,
}
