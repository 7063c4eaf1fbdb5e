"""Conversion of Cohere's schema and requests to partitions and releases.

A conjunction of tests is a box, a formula is a union of boxes (theory 6.1), and a request is a loss
that is declared at Rényi orders. A property that a release cannot express is charged more or
reported as a problem; it is never charged less. `cohere_export.py` converts in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from dpolicy.errors import InvalidValue
from dpolicy.integrations.cohere.cohere_export import dpolicy_unit_name
from dpolicy.integrations.cohere.cohere_model import (
    RULES,
    Between,
    CohereCosts,
    CohereDomain,
    CohereIntervals,
    CohereRange,
    CohereRequest,
    CohereSchema,
    CohereTest,
    CohereValue,
    Dnf,
    Eq,
    In,
    Neq,
)
from dpolicy.integrations.value_reader import Problems
from dpolicy.privacy.certificates import MIN_ORDER, format_order
from dpolicy.privacy.mechanisms.parameters import LARGEST, MAX_STATED_ORDER, SMALLEST
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.releases.regions import MAX_BOXES, Interval
from dpolicy.text.shapes import NAME

#: Formula and the rules that are charged in exactly its region.
_RuleGroup = tuple[Dnf, tuple[str, ...]]

#: Boxes of a release and the rules that are charged there.
_ChargedBoxes = tuple[list[dict[str, Any]], tuple[str, ...]]


def partitions_from_schema(schema: CohereSchema) -> dict[str, Any]:
    """Return the partitions of a schema in the form of a policy file; `Rules` is not one."""
    return {
        name: {"from": domain.first, "to": domain.last}
        if isinstance(domain, CohereRange)
        else {"values": [str(value) for value in domain]}
        for name, domain in schema.domains.items()
        if name != RULES
    }


def charged_rules(request: CohereRequest, schema: CohereSchema) -> tuple[str, ...]:
    """Return the rules to which a request is charged anywhere; all rules if it names none."""
    charged = {rule for _, rules in _group_rules(request.dnf, schema) for rule in rules}
    return tuple(rule for rule in _rule_names(schema) if rule in charged)


def release_body_from_request(
    request: CohereRequest,
    schema: CohereSchema,
    *,
    cohort: str | None = None,
    rules_label: str | None = None,
) -> tuple[dict[str, Any] | None, Problems]:
    """Convert a request to the body of a release, or return None and all problems.

    `cohort` is the partition of the selected privacy units; without it, the release is charged to
    all users. `rules_label` is a label with several values that receives the rules: the release has
    one mechanism for each set of rules that is charged in the same region. Without it, the rules
    are dropped.
    """
    losses = {
        unit: _curve_to_declare(costs, schema.orders) for unit, costs in request.costs.items()
    }
    units = [unit for unit in schema.units if losses.get(unit)]
    intervals = _select_intervals(request, cohort)
    groups = _group_rules(request.dnf, schema) if rules_label else ((request.dnf, ()),)
    try:
        if not units:
            message = "the request has no usable cost at orders from 1.01 to 1,000,000"
            raise InvalidValue("C011", message)
        charged: list[_ChargedBoxes] = [
            (boxes_from_formula(dnf, schema, cohort, intervals), rules) for dnf, rules in groups
        ]
        if not any(boxes for boxes, _ in charged):
            raise InvalidValue("C009", "the request selects no users")
    except InvalidValue as error:
        return None, (_add_request_id(error, request.id),)
    mechanisms = [
        _mechanism_body(request, {unit: losses[unit] for unit in units}, boxes, rules, rules_label)
        for boxes, rules in charged
        if boxes
    ]
    problems = [
        problem
        for unit in units
        for problem in parse_mechanism(_mechanism_parameters(losses[unit]))[1]
    ]
    problems += _name_problems(mechanisms)
    if problems:
        return None, tuple(_add_request_id(problem, request.id) for problem in problems)
    return {"release": str(request.id), "utility": request.profit, "mechanisms": mechanisms}, ()


def _mechanism_body(
    request: CohereRequest,
    losses: Mapping[str, Mapping[str, Fraction]],
    boxes: list[dict[str, Any]],
    rules: tuple[str, ...],
    rules_label: str | None,
) -> dict[str, Any]:
    """Return a declared loss, stated for the first unit and restated for the others."""
    first, *restated = losses
    body: dict[str, Any] = {
        "mechanism": {"kind": "declared", "renyi": losses[first]},
        "unit": dpolicy_unit_name(first),
    }
    if restated:
        body["also"] = {dpolicy_unit_name(unit): {"renyi": losses[unit]} for unit in restated}
    if request.attributes:
        body["attributes"] = sorted(set(request.attributes))
    if rules_label and rules:
        body["labels"] = {rules_label: list(rules)}
    if {} not in boxes:
        body["where"] = boxes
    return body


def boxes_from_formula(
    dnf: Dnf,
    schema: CohereSchema,
    cohort: str | None = None,
    intervals: CohereIntervals | None = None,
) -> list[dict[str, Any]]:
    """Return boxes whose union is the region of a formula; no boxes if it selects no users.

    Tests on `Rules` do not restrict the region. Raise `InvalidValue` if there are too many boxes.
    """
    boxes: list[dict[str, Any]] = []
    for conjunction in dnf:
        sides = [
            (name, _selections(test, schema.domains[name]))
            for name, test in conjunction.items()
            if name != RULES
        ]
        if cohort is not None and intervals is not None:
            sides.append((cohort, [{"from": low, "to": high} for low, high in intervals]))
        if len(boxes) + prod(len(selections) for _, selections in sides) > MAX_BOXES:
            raise InvalidValue("C010", f"the selection has more than {MAX_BOXES} boxes")
        product: list[dict[str, Any]] = [{}]
        for name, selections in sides:
            product = [{**box, name: selection} for box in product for selection in selections]
        boxes += product
    return boxes


def _selections(test: CohereTest, domain: CohereDomain) -> list[Any]:
    """Return the selected part of a domain as the fewest selections of a release."""
    runs = _select_runs(test, domain)
    if isinstance(domain, CohereRange):
        return [{"from": low, "to": high - 1} for low, high in runs]
    values = [str(value) for low, high in runs for value in domain[low:high]]
    return [sorted(values)] if values else []


def _select_runs(test: CohereTest | None, domain: CohereDomain) -> tuple[Interval, ...]:
    """Return half-open intervals of the selected integers, or of positions in a listed domain."""
    low, high = (
        (domain.first, domain.last + 1) if isinstance(domain, CohereRange) else (0, len(domain))
    )
    match test:
        case None:
            runs = [(low, high)]
        case Between(first=first, last=last):
            runs = [(first, last + 1)]
        case Eq(value=value):
            position = _position(value, domain)
            runs = [(position, position + 1)]
        case In(values=values):
            positions = [_position(value, domain) for value in values]
            runs = [(position, position + 1) for position in positions]
        case Neq(value=value):
            position = _position(value, domain)
            runs = [(low, position), (position + 1, high)]
    return _merge_runs(runs)


def _position(value: CohereValue, domain: CohereDomain) -> int:
    return int(value) if isinstance(domain, CohereRange) else domain.index(value)


def _merge_runs(runs: Iterable[Interval]) -> tuple[Interval, ...]:
    """Merge intervals without the limit on boxes, which does not apply to a single axis."""
    merged: list[Interval] = []
    for low, high in sorted(run for run in runs if run[0] < run[1]):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def _rule_names(schema: CohereSchema) -> tuple[str, ...]:
    domain = schema.domains.get(RULES, ())
    if isinstance(domain, CohereRange):
        return tuple(map(str, range(domain.first, domain.last + 1)))
    return tuple(map(str, domain))


def _group_rules(dnf: Dnf, schema: CohereSchema) -> tuple[_RuleGroup, ...]:
    """Group rules that are charged by the same conjunctions; each rule is in at most one group."""
    domain, names = schema.domains.get(RULES), _rule_names(schema)
    if domain is None:
        return ((dnf, ()),)
    start = domain.first if isinstance(domain, CohereRange) else 0
    conjunctions_by_rule: list[list[int]] = [[] for _ in names]
    for number, conjunction in enumerate(dnf):
        for low, high in _select_runs(conjunction.get(RULES), domain):
            for position in range(low - start, high - start):
                conjunctions_by_rule[position].append(number)
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in zip(names, conjunctions_by_rule, strict=True):
        groups.setdefault(tuple(numbers), []).append(name)
    return tuple(
        (tuple(dnf[number] for number in numbers), tuple(rules))
        for numbers, rules in groups.items()
        if numbers
    )


def _select_intervals(request: CohereRequest, cohort: str | None) -> CohereIntervals | None:
    """Return the union of selected privacy units over all units with a cost; None for all."""
    if cohort is None or any(unit not in request.selection for unit in request.costs):
        return None
    runs = [(first, last + 1) for unit in request.costs for first, last in request.selection[unit]]
    return tuple((low, high - 1) for low, high in _merge_runs(runs))


def _curve_to_declare(costs: CohereCosts, orders: Sequence[Fraction]) -> dict[str, Fraction]:
    """Return the costs that a release can declare; a cost below 1e-9 is declared as 1e-9."""
    return {
        format_order(order): max(cost, SMALLEST)
        for order, cost in zip(orders, costs, strict=True)
        if cost is not None and cost <= LARGEST and MIN_ORDER <= order <= MAX_STATED_ORDER
    }


def _mechanism_parameters(curve: Mapping[str, Fraction]) -> dict[str, Any]:
    return {"kind": "declared", "renyi": {Fraction(order): cost for order, cost in curve.items()}}


def _name_problems(mechanisms: Iterable[Mapping[str, Any]]) -> list[InvalidValue]:
    """Report each name that is not valid in a release, once."""
    names: list[str] = []
    for mechanism in mechanisms:
        names += (mechanism["unit"], *mechanism.get("also", ()), *mechanism.get("attributes", ()))
        for values in mechanism.get("labels", {}).values():
            names += values
        for box in mechanism.get("where", ()):
            names += box
            for selection in box.values():
                names += selection if isinstance(selection, list) else ()
    invalid = [name for name in dict.fromkeys(names) if not NAME.fullmatch(name)]
    return [InvalidValue("C021", f"`{name}` is not a valid name in a release") for name in invalid]


def _add_request_id(problem: InvalidValue, request_id: int) -> InvalidValue:
    return InvalidValue(problem.code, f"`{request_id}`: {problem.message}")
