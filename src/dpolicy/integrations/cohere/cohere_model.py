"""Content of Cohere's files as frozen values, and its conversion to plain JSON.

There are three files: the schema (`schema.json`), and the requests and blocks of a round
(`requests_N.json`, `blocks_N.json`). docs/integrations/cohere.md describes their format;
`cohere_reader.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, nextafter
from typing import Any

from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import SATURATION
from dpolicy.privacy.cost_report import round_up_to_printed_float

#: Problem codes with their titles.
PROBLEMS: Mapping[str, str] = {
    "C001": "value of the wrong type",
    "C002": "missing key",
    "C003": "number out of range",
    "C004": "attribute or unit that is not in the schema",
    "C005": "value outside the domain of its attribute",
    "C006": "duplicate name, value or id",
    "C007": "number of costs differs from the number of orders",
    "C008": "unknown Rényi orders",
    "C009": "request that selects no users",
    "C010": "selection with too many boxes",
    "C011": "request without a usable cost",
    "C020": "budget that Cohere's files cannot express",
    "C021": "name that is invalid in the other format, or would change",
    "C022": "loss that Cohere's files cannot express",
    "C023": "release that no exported cumulative rule covers",
    "C024": "predicate that cannot be evaluated for the release",
}

#: Name of the attribute that lists the rules to which a request is charged.
RULES = "Rules"

#: Value of a listed domain.
CohereValue = str | int


@dataclass(frozen=True, slots=True)
class CohereRange:
    """Range of integers; both ends are included."""

    first: int
    last: int


#: Domain of an attribute: a list of values, or a range.
CohereDomain = tuple[CohereValue, ...] | CohereRange


@dataclass(frozen=True, slots=True)
class Eq:
    """Test for one value."""

    value: CohereValue


@dataclass(frozen=True, slots=True)
class Neq:
    """Test for all values except one."""

    value: CohereValue


@dataclass(frozen=True, slots=True)
class Between:
    """Test for a range of integers; both ends are included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class In:
    """Test for a list of values."""

    values: tuple[CohereValue, ...]


CohereTest = Eq | Neq | Between | In

#: Tests by attribute, all of which must hold; an attribute without a test is unrestricted.
Conjunction = Mapping[str, CohereTest]

#: Conjunctions, at least one of which must hold.
Dnf = tuple[Conjunction, ...]

#: Closed intervals of integers.
CohereIntervals = tuple[tuple[int, int], ...]

#: Cost at each order; None where there is no bound.
CohereCosts = tuple[Fraction | None, ...]


@dataclass(frozen=True, slots=True)
class CohereSchema:
    """Attributes with their domains (`Rules` is one of them), units and Rényi orders.

    `window` is the number of rounds for which a block is active.
    """

    domains: Mapping[str, CohereDomain]
    units: tuple[str, ...]
    window: int
    orders: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class CohereRequest:
    """Request of a round. Without a `selection`, all privacy units of a unit are selected."""

    id: int
    created: int
    profit: int
    costs: Mapping[str, CohereCosts]
    dnf: Dnf
    selection: Mapping[str, CohereIntervals] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CohereSection:
    """Budget for the points of a block that a formula selects."""

    budget: EpsilonDelta
    dnf: Dnf


@dataclass(frozen=True, slots=True)
class CohereBlock:
    """Privacy units with the same lifetime, their budgets and the requests charged to them."""

    id: int
    unit: str
    created: int
    retired: int | None
    selection: CohereIntervals | None
    budget: EpsilonDelta | None
    sections: tuple[CohereSection, ...] = ()
    request_ids: tuple[int, ...] = ()


def schema_json(schema: CohereSchema) -> dict[str, Any]:
    """Return a schema in the format of `schema.json`; `eps_values` contains the orders."""
    return {
        "attributes": [
            {"name": name, "value_domain": _interval_json(domain.first, domain.last)}
            if isinstance(domain, CohereRange)
            else {"name": name, "value_domain": list(domain)}
            for name, domain in schema.domains.items()
        ],
        "privacy_units": list(schema.units),
        "block_sliding_window_size": schema.window,
        "accounting_type": {"Rdp": {"eps_values": [float(order) for order in schema.orders]}},
    }


def requests_json(requests: Iterable[CohereRequest]) -> list[dict[str, Any]]:
    """Return requests in the format of `requests_N.json`.

    Costs are rounded up to a float; a cost without a bound is written as 2²⁰.
    """
    return [
        {
            "request_id": request.id,
            "created": request.created,
            "profit": request.profit,
            "request_cost": {
                unit: {"Rdp": {"eps_values": [_cost_json(cost) for cost in costs]}}
                for unit, costs in request.costs.items()
            },
            "dnf": _dnf_json(request.dnf),
            "privacy_unit_selection": {
                unit: _intervals_json(intervals) for unit, intervals in request.selection.items()
            },
            **({"attributes": list(request.attributes)} if request.attributes else {}),
        }
        for request in requests
    ]


def blocks_json(blocks: Iterable[CohereBlock]) -> list[dict[str, Any]]:
    """Return blocks in the format of `blocks_N.json`; budgets are rounded down to a float."""
    return [
        {
            "id": block.id,
            "privacy_unit": block.unit,
            "created": block.created,
            "retired": block.retired,
            "privacy_unit_selection": None
            if block.selection is None
            else _intervals_json(block.selection),
            "total_budget": None if block.budget is None else _budget_json(block.budget),
            "budget_by_section": [
                {"total_budget": _budget_json(section.budget), "dnf": _dnf_json(section.dnf)}
                for section in block.sections
            ],
            "request_ids": list(block.request_ids),
        }
        for block in blocks
    ]


def _interval_json(first: int, last: int) -> dict[str, int]:
    return {"min": first, "max": last}


def _cost_json(cost: Fraction | None) -> float:
    return float(SATURATION) if cost is None else round_up_to_printed_float(cost)


def _intervals_json(intervals: CohereIntervals) -> list[list[int]]:
    return [list(interval) for interval in intervals]


def _dnf_json(dnf: Dnf) -> dict[str, Any]:
    conjunctions = [
        {"predicates": {name: _test_json(test) for name, test in conjunction.items()}}
        for conjunction in dnf
    ]
    return {"conjunctions": conjunctions}


def _test_json(test: CohereTest) -> dict[str, Any]:
    match test:
        case Eq(value=value):
            return {"Eq": value}
        case Neq(value=value):
            return {"Neq": value}
        case Between(first=first, last=last):
            return {"Between": _interval_json(first, last)}
        case In(values=values):
            return {"In": list(values)}


def _budget_json(budget: EpsilonDelta) -> dict[str, Any]:
    return {"EpsDeltaDp": {"eps": _round_down(budget.epsilon), "delta": _round_down(budget.delta)}}


def _round_down(value: Fraction) -> float:
    """Return the nearest float whose printed decimal is not above the value."""
    near = float(value)
    while Fraction(repr(near)) > value:
        near = nextafter(near, -inf)
    return near
