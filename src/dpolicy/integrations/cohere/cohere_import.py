"""Cohere's schema and requests → partitions and releases; `cohere_export.py` is the way back.

A conjunction of tests is a box, a formula a union of boxes (theory 6.1), and a request is a loss
that somebody declares at Rényi orders. What a release cannot say is charged more or is a problem,
never charged less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from dpolicy.errors import InvalidValue
from dpolicy.integrations.cohere.cohere_export import (
    cohere_unit_name,
    dpolicy_unit_name,
    export_blocks,
    export_requests,
    export_schema,
)
from dpolicy.integrations.cohere.cohere_model import (
    RULES,
    Between,
    CohereBlock,
    CohereCosts,
    CohereDomain,
    CohereRange,
    CohereRequest,
    CohereSchema,
    CohereSection,
    CohereTest,
    Dnf,
    Eq,
    In,
    Intervals,
    Neq,
    blocks_json,
    requests_json,
    schema_json,
)
from dpolicy.integrations.cohere.cohere_reader import (
    Problems,
    read_blocks,
    read_requests,
    read_schema,
)
from dpolicy.privacy.certificates import MIN_ORDER, format_order
from dpolicy.privacy.mechanisms.parameters import LARGEST, MAX_STATED_ORDER, SMALLEST
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.releases.regions import MAX_BOXES, Interval
from dpolicy.text.shapes import NAME

__all__ = [
    "CohereBlock",
    "CohereRequest",
    "CohereSchema",
    "CohereSection",
    "blocks_json",
    "boxes_from_formula",
    "charged_rules",
    "cohere_unit_name",
    "dpolicy_unit_name",
    "export_blocks",
    "export_requests",
    "export_schema",
    "partitions_from_schema",
    "read_blocks",
    "read_requests",
    "read_schema",
    "release_body_from_request",
    "requests_json",
    "schema_json",
]


def partitions_from_schema(schema: CohereSchema) -> dict[str, Any]:
    """The partitions of a schema, as a policy text writes them; `Rules` is none."""
    return {
        name: {"from": domain.first, "to": domain.last}
        if isinstance(domain, CohereRange)
        else {"values": [str(value) for value in domain]}
        for name, domain in schema.domains.items()
        if name != RULES
    }


def charged_rules(request: CohereRequest, schema: CohereSchema) -> tuple[str, ...]:
    """The rules that a request is charged to anywhere; all of them where it does not say."""
    found = {rule for _, rules in _charged(request.dnf, schema) for rule in rules}
    return tuple(rule for rule in _rules(schema) if rule in found)


def release_body_from_request(
    request: CohereRequest,
    schema: CohereSchema,
    *,
    cohort: str | None = None,
    rules_label: str | None = None,
) -> tuple[dict[str, Any] | None, Problems]:
    """A request → the body of a release, as a decision point takes it, or what is wrong with it.

    `cohort` is the partition that the selected privacy units are of; without one, all are charged.
    `rules_label` is a label with many values that takes the rules: one mechanism for each set of
    rules that is charged at the same places. Without it the rules are left out.
    """
    losses = {unit: _points(costs, schema.orders) for unit, costs in request.costs.items()}
    known = [unit for unit in schema.units if losses.get(unit)]
    chosen = _chosen(request, cohort)
    groups = _charged(request.dnf, schema) if rules_label else ((request.dnf, ()),)
    try:
        if not known:
            raise InvalidValue("C011", "its costs say nothing at orders from 1.01 to 1,000,000")
        wheres = [(boxes_from_formula(dnf, schema, cohort, chosen), rules) for dnf, rules in groups]
        if not any(where for where, _ in wheres):
            raise InvalidValue("C009", "it selects nobody")
    except InvalidValue as error:
        return None, (_told(request.id, error),)
    first, *others = known
    declared = {unit: {"kind": "declared", "renyi": losses[unit]} for unit in known}
    shared: dict[str, Any] = {"mechanism": declared[first], "unit": dpolicy_unit_name(first)}
    if others:
        shared["also"] = {dpolicy_unit_name(unit): {"renyi": losses[unit]} for unit in others}
    if request.attributes:
        shared["attributes"] = sorted(set(request.attributes))
    mechanisms = [
        {
            **shared,
            **({"labels": {rules_label: list(rules)}} if rules_label and rules else {}),
            **({} if {} in where else {"where": where}),
        }
        for where, rules in wheres
        if where
    ]
    problems = [p for said in declared.values() for p in parse_mechanism(_numbered(said))[1]]
    problems += _name_problems(mechanisms)
    if problems:
        return None, tuple(_told(request.id, problem) for problem in problems)
    return {"release": str(request.id), "utility": request.profit, "mechanisms": mechanisms}, ()


def boxes_from_formula(
    dnf: Dnf, schema: CohereSchema, cohort: str | None = None, chosen: Intervals | None = None
) -> list[dict[str, Any]]:
    """A formula → boxes whose union it is; `Rules` says nothing about places. None: nobody."""
    boxes: list[dict[str, Any]] = []
    for conjunction in dnf:
        sides = [
            (name, _sides(test, schema.domains[name]))
            for name, test in conjunction.items()
            if name != RULES
        ]
        if cohort is not None and chosen is not None:
            sides.append((cohort, [{"from": low, "to": high} for low, high in chosen]))
        if len(boxes) + prod(len(parts) for _, parts in sides) > MAX_BOXES:
            raise InvalidValue("C010", f"it falls into more than {MAX_BOXES} boxes")
        drawn: list[dict[str, Any]] = [{}]
        for name, parts in sides:
            drawn = [{**box, name: part} for box in drawn for part in parts]
        boxes += drawn
    return boxes


def _sides(test: CohereTest, domain: CohereDomain) -> list[Any]:
    """What a test selects of its attribute, in as few selections as a release needs."""
    runs = _runs(test, domain)
    if isinstance(domain, CohereRange):
        return [{"from": low, "to": high - 1} for low, high in runs]
    values = [str(value) for low, high in runs for value in domain[low:high]]
    return [sorted(values)] if values else []


def _runs(test: CohereTest | None, domain: CohereDomain) -> tuple[Interval, ...]:
    """What a test selects, by whole number or by position in the domain."""
    low, high = (
        (domain.first, domain.last + 1) if isinstance(domain, CohereRange) else (0, len(domain))
    )
    match test:
        case None:
            runs = [(low, high)]
        case Between(first=first, last=last):
            runs = [(first, last + 1)]
        case Eq(value=value):
            runs = [(_place(value, domain), _place(value, domain) + 1)]
        case In(values=values):
            runs = [(_place(value, domain), _place(value, domain) + 1) for value in values]
        case Neq(value=value):
            runs = [(low, _place(value, domain)), (_place(value, domain) + 1, high)]
    return _merged(runs)


def _place(value: str | int, domain: CohereDomain) -> int:
    return int(value) if isinstance(domain, CohereRange) else domain.index(value)


def _merged(runs: Iterable[Interval]) -> tuple[Interval, ...]:
    """The fewest intervals; the limit on the boxes of a release is not meant for one axis."""
    merged: list[Interval] = []
    for low, high in sorted(run for run in runs if run[0] < run[1]):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def _rules(schema: CohereSchema) -> tuple[str, ...]:
    domain = schema.domains.get(RULES, ())
    if isinstance(domain, CohereRange):
        return tuple(map(str, range(domain.first, domain.last + 1)))
    return tuple(map(str, domain))


def _charged(dnf: Dnf, schema: CohereSchema) -> tuple[tuple[Dnf, tuple[str, ...]], ...]:
    """The formula of each set of rules that is charged at the same places; a rule is in one."""
    domain, names = schema.domains.get(RULES), _rules(schema)
    if domain is None:
        return ((dnf, ()),)
    start = domain.first if isinstance(domain, CohereRange) else 0
    said_by: list[list[int]] = [[] for _ in names]
    for number, conjunction in enumerate(dnf):
        for low, high in _runs(conjunction.get(RULES), domain):
            for place in range(low - start, high - start):
                said_by[place].append(number)
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in zip(names, said_by, strict=True):
        groups.setdefault(tuple(numbers), []).append(name)
    return tuple((tuple(dnf[n] for n in ns), tuple(rules)) for ns, rules in groups.items() if ns)


def _chosen(request: CohereRequest, cohort: str | None) -> Intervals | None:
    """The selected privacy units over all units that cost something; None for all of them."""
    if cohort is None or any(unit not in request.selection for unit in request.costs):
        return None
    runs = [(a, b + 1) for unit in request.costs for a, b in request.selection[unit]]
    return tuple((low, high - 1) for low, high in _merged(runs))


def _points(costs: CohereCosts, orders: Sequence[Fraction]) -> dict[str, Fraction]:
    """What a release may declare: the orders and sizes it knows; nothing is declared as 1e-9."""
    return {
        format_order(order): max(cost, SMALLEST)
        for order, cost in zip(orders, costs, strict=True)
        if cost is not None and cost <= LARGEST and MIN_ORDER <= order <= MAX_STATED_ORDER
    }


def _numbered(declared: Mapping[str, Any]) -> dict[str, Any]:
    return {**declared, "renyi": {Fraction(o): v for o, v in declared["renyi"].items()}}


def _name_problems(mechanisms: Iterable[Mapping[str, Any]]) -> list[InvalidValue]:
    """The names that no release may use, each once."""
    said: list[str] = []
    for mechanism in mechanisms:
        said += (mechanism["unit"], *mechanism.get("also", ()), *mechanism.get("attributes", ()))
        for values in mechanism.get("labels", {}).values():
            said += values
        for box in mechanism.get("where", ()):
            said += box
            for side in box.values():
                said += side if isinstance(side, list) else ()
    wrong = [name for name in dict.fromkeys(said) if not NAME.fullmatch(name)]
    return [InvalidValue("C021", f"`{name}` cannot be a name in a release") for name in wrong]


def _told(name: object, problem: InvalidValue) -> InvalidValue:
    return InvalidValue(problem.code, f"`{name}`: {problem.message}")
