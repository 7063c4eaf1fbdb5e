"""What Cohere's files say as frozen values, and these values → plain JSON.

Three files: the schema (`schema.json`), the requests and the blocks of a round (`requests_N.json`,
`blocks_N.json`); docs/integrations/cohere.md has their shape. `cohere_reading.py` reads them.
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

#: Every code, and what it means for whoever made the file.
PROBLEMS: Mapping[str, str] = {
    "C001": "a value of the wrong type",
    "C002": "a key is missing",
    "C003": "a number that makes no sense there",
    "C004": "an attribute or unit that the schema does not have",
    "C005": "a value outside of the domain of its attribute",
    "C006": "a name, value or id that stands twice",
    "C007": "not one cost for every order",
    "C008": "the Rényi orders are not known",
    "C009": "a request that selects nobody",
    "C010": "a selection that falls into too many boxes",
    "C011": "a cost that says nothing",
    "C020": "a budget that these files cannot hold",
    "C021": "a name that one side cannot write or that would change on the way",
    "C022": "a loss that these files cannot hold",
    "C023": "a release that no rule over all releases bounds",
    "C024": "a release on which a predicate has no answer",
}

#: The attribute by which a request says which rules it is charged to.
RULES = "Rules"

#: One entry of a listed domain.
CohereValue = str | int


@dataclass(frozen=True, slots=True)
class CohereRange:
    """Whole numbers, both ends included."""

    first: int
    last: int


#: What an attribute can be: listed values, or a range.
CohereDomain = tuple[CohereValue, ...] | CohereRange


@dataclass(frozen=True, slots=True)
class Eq:
    """This value."""

    value: CohereValue


@dataclass(frozen=True, slots=True)
class Neq:
    """All values but this one."""

    value: CohereValue


@dataclass(frozen=True, slots=True)
class Between:
    """From one whole number to another, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class In:
    """These values."""

    values: tuple[CohereValue, ...]


CohereTest = Eq | Neq | Between | In

#: All tests hold; an attribute without one may be anything.
Conjunction = Mapping[str, CohereTest]

#: At least one conjunction holds.
Dnf = tuple[Conjunction, ...]

#: Closed intervals of whole numbers.
Intervals = tuple[tuple[int, int], ...]

#: One amount per order; None where there is no bound.
CohereCosts = tuple[Fraction | None, ...]


@dataclass(frozen=True, slots=True)
class CohereSchema:
    """Attributes, the rules among them, and how losses are counted."""

    domains: Mapping[str, CohereDomain]
    units: tuple[str, ...]
    window: int
    orders: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class CohereRequest:
    """One request; a unit without a `selection` has everything selected."""

    id: int
    created: int
    profit: int
    costs: Mapping[str, CohereCosts]
    dnf: Dnf
    selection: Mapping[str, Intervals] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CohereSection:
    """A budget for the points of a block that a formula selects."""

    budget: EpsilonDelta
    dnf: Dnf


@dataclass(frozen=True, slots=True)
class CohereBlock:
    """The privacy units that come and go together, their budgets, and what they were charged."""

    id: int
    unit: str
    created: int
    retired: int | None
    selection: Intervals | None
    budget: EpsilonDelta | None
    sections: tuple[CohereSection, ...] = ()
    request_ids: tuple[int, ...] = ()


def schema_json(schema: CohereSchema) -> dict[str, Any]:
    """The schema as `schema.json`; the orders stand as its `eps_values`."""
    return {
        "attributes": [
            {"name": name, "value_domain": _ends_json(domain.first, domain.last)}
            if isinstance(domain, CohereRange)
            else {"name": name, "value_domain": list(domain)}
            for name, domain in schema.domains.items()
        ],
        "privacy_units": list(schema.units),
        "block_sliding_window_size": schema.window,
        "accounting_type": {"Rdp": {"eps_values": [float(order) for order in schema.orders]}},
    }


def requests_json(requests: Iterable[CohereRequest]) -> list[dict[str, Any]]:
    """Requests as `requests_N.json`; costs are rounded up to a float, no bound is 2²⁰."""
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
                unit: _intervals_json(chosen) for unit, chosen in request.selection.items()
            },
            **({"attributes": list(request.attributes)} if request.attributes else {}),
        }
        for request in requests
    ]


def blocks_json(blocks: Iterable[CohereBlock]) -> list[dict[str, Any]]:
    """Blocks as `blocks_N.json`; budgets are rounded down to a float."""
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


def _ends_json(first: int, last: int) -> dict[str, int]:
    return {"min": first, "max": last}


def _cost_json(cost: Fraction | None) -> float:
    return float(SATURATION) if cost is None else round_up_to_printed_float(cost)


def _intervals_json(chosen: Intervals) -> list[list[int]]:
    return [list(interval) for interval in chosen]


def _dnf_json(dnf: Dnf) -> dict[str, Any]:
    return {"conjunctions": [{"predicates": {n: _test_json(t) for n, t in c.items()}} for c in dnf]}


def _test_json(test: CohereTest) -> dict[str, Any]:
    match test:
        case Eq(value=value):
            return {"Eq": value}
        case Neq(value=value):
            return {"Neq": value}
        case Between(first=first, last=last):
            return {"Between": _ends_json(first, last)}
        case In(values=values):
            return {"In": list(values)}


def _budget_json(budget: EpsilonDelta) -> dict[str, Any]:
    return {"EpsDeltaDp": {"eps": _down(budget.epsilon), "delta": _down(budget.delta)}}


def _down(value: Fraction) -> float:
    """The float whose printed decimal is the nearest that is not above."""
    near = float(value)
    while Fraction(repr(near)) > value:
        near = nextafter(near, -inf)
    return near
