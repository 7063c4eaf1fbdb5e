"""Readers of Cohere's parsed JSON files. All problems are reported at once, with their paths.

Unknown keys are ignored, because they do not affect charges. Everything else is strict: an unknown
attribute, unit or value is a problem and never counts as "no match".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from dpolicy.integrations.cohere.cohere_model import (
    RULES,
    Between,
    CohereBlock,
    CohereCosts,
    CohereDomain,
    CohereIntervals,
    CohereRange,
    CohereRequest,
    CohereSchema,
    CohereSection,
    CohereTest,
    CohereValue,
    Conjunction,
    Dnf,
    Eq,
    In,
    Neq,
)
from dpolicy.integrations.value_reader import MISSING, ProblemCodes, Problems, ValueReader, shorten
from dpolicy.policy.model import DEFAULT_MAX_RULES
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import SATURATION

_CODES = ProblemCodes(wrong_type="C001", missing="C002", out_of_range="C003", duplicate="C006")
_ORDERS_PATH = "accounting_type.Rdp.eps_values"
_TEST_KINDS = ("Between", "Eq", "In", "Neq")


def read_schema(
    data: Any, orders: Sequence[Fraction] | None = None
) -> tuple[CohereSchema | None, Problems]:
    """Read `schema.json`. Without `orders`, its `eps_values` are the Rényi orders."""
    reader = _SchemaReader(_CODES)
    schema = reader.read_schema(data, orders)
    return reader.result(schema)


def read_requests(
    data: Any, schema: CohereSchema
) -> tuple[tuple[CohereRequest, ...] | None, Problems]:
    """Read `requests_N.json` and check every name against the schema."""
    reader = _RoundReader(schema)
    requests = tuple(reader.read_list(data, "requests", reader.read_request))
    reader.check_distinct((request.id for request in requests), "requests", "request_id")
    return reader.result(requests)


def read_blocks(data: Any, schema: CohereSchema) -> tuple[tuple[CohereBlock, ...] | None, Problems]:
    """Read `blocks_N.json` and check every name against the schema."""
    reader = _RoundReader(schema)
    blocks = tuple(reader.read_list(data, "blocks", reader.read_block))
    reader.check_distinct((block.id for block in blocks), "blocks", "id")
    return reader.result(blocks)


class _CohereReader(ValueReader):
    """Reader of the values that occur in several of Cohere's files."""

    def read_value(self, data: Any, path: str) -> CohereValue:
        return data if isinstance(data, str) else self.read_integer(data, path)

    def read_interval(self, data: Any, path: str) -> tuple[int, int]:
        """Read the ends of a range or interval, as {min, max} or as a pair."""
        if isinstance(data, list | tuple) and len(data) == 2:
            data = {"min": data[0], "max": data[1]}
        first = self.read_integer(*self.field(data, "min", path))
        last = self.read_integer(*self.field(data, "max", path))
        if first > last:
            self.report("C003", path, f"the interval from {first} to {last} is empty")
        return first, last

    def read_eps_values(self, data: Any, path: str) -> tuple[Fraction, ...]:
        """Read the amounts of {Rdp: {eps_values}}."""
        inner, inner_path = self.field(data, "Rdp", path)
        values, values_path = self.field(inner, "eps_values", inner_path)
        return tuple(self.read_list(values, values_path, self.read_amount))


class _SchemaReader(_CohereReader):
    """Reader of `schema.json`."""

    def read_schema(self, data: Any, orders: Sequence[Fraction] | None) -> CohereSchema:
        attributes, path = self.field(data, "attributes", "")
        domains = self.read_list(attributes, path, self._read_attribute)
        self.check_distinct((name for name, _ in domains), "attributes", "attribute")
        names, path = self.field(data, "privacy_units", "")
        units = tuple(self.read_list(names, path, self.read_name))
        self.check_distinct(units, "privacy_units", "unit")
        window = self.read_integer(*self.field(data, "block_sliding_window_size", ""), 1)
        eps_values = self.read_eps_values(*self.field(data, "accounting_type", ""))
        return CohereSchema(dict(domains), units, window, self._orders(eps_values, orders))

    def _read_attribute(self, data: Any, path: str) -> tuple[str, CohereDomain]:
        name = self.read_name(*self.field(data, "name", path))
        domain, domain_path = self.field(data, "value_domain", path)
        if not isinstance(domain, list | tuple):
            first, last = self.read_interval(domain, domain_path)
            if name == RULES and last - first >= DEFAULT_MAX_RULES:
                self.report("C003", domain_path, f"more than {DEFAULT_MAX_RULES} rules")
            return name, CohereRange(first, last)
        values = tuple(self.read_list(domain, domain_path, self.read_value))
        self.check_distinct(map(str, values), domain_path, "value")
        if not values:
            self.report("C003", domain_path, "a domain needs at least one value")
        return name, values

    def _orders(
        self, eps_values: tuple[Fraction, ...], orders: Sequence[Fraction] | None
    ) -> tuple[Fraction, ...]:
        """Return `orders`, or the values of the schema if they can be orders."""
        result = eps_values if orders is None else tuple(orders)
        if self.problem_count:
            return result
        increasing = all(low < high for low, high in pairwise((Fraction(1), *result)))
        if not result or not increasing:
            message = "the values are not increasing orders above 1; help: pass `orders`"
            self.report("C008", _ORDERS_PATH, message)
        elif len(result) != len(eps_values):
            self.report("C007", _ORDERS_PATH, f"{len(eps_values)} values for {len(result)} orders")
        return result


class _RoundReader(_CohereReader):
    """Reader of requests and blocks, which use the names of a schema."""

    def __init__(self, schema: CohereSchema) -> None:
        super().__init__(_CODES)
        self._schema = schema

    def read_request(self, data: Any, path: str) -> CohereRequest:
        cost, cost_path = self.field(data, "request_cost", path)
        costs = self.read_map(cost, cost_path, self._read_costs)
        if cost is not MISSING and not costs:
            self.report("C011", cost_path, "a request needs the cost for at least one unit")
        self._check_units(costs, cost_path)
        names, names_path = self.optional_field(data, "attributes", path)
        return CohereRequest(
            self.read_integer(*self.field(data, "request_id", path), 0),
            self.read_integer(*self.field(data, "created", path), 0),
            self.read_integer(*self.field(data, "profit", path), 0),
            costs,
            self._read_dnf(*self.field(data, "dnf", path)),
            self._read_selection(*self.optional_field(data, "privacy_unit_selection", path)),
            () if names is None else tuple(self.read_list(names, names_path, self.read_name)),
        )

    def read_block(self, data: Any, path: str) -> CohereBlock:
        unit, unit_path = self.field(data, "privacy_unit", path)
        name = self.read_name(unit, unit_path)
        self._check_units([name] if name else [], unit_path)
        created = self.read_integer(*self.field(data, "created", path), 0)
        retired, retired_path = self.optional_field(data, "retired", path)
        selection, selection_path = self.optional_field(data, "privacy_unit_selection", path)
        total, total_path = self.optional_field(data, "total_budget", path)
        sections, sections_path = self.optional_field(data, "budget_by_section", path)
        charged, charged_path = self.optional_field(data, "request_ids", path)
        return CohereBlock(
            self.read_integer(*self.field(data, "id", path), 0),
            name,
            created,
            None if retired is None else self.read_integer(retired, retired_path, created),
            None if selection is None else self._read_intervals(selection, selection_path),
            None if total is None else self._read_budget(total, total_path),
            tuple(self.read_list(sections or (), sections_path, self._read_section)),
            tuple(self.read_list(charged or (), charged_path, self._read_id)),
        )

    def _read_id(self, data: Any, path: str) -> int:
        return self.read_integer(data, path, 0)

    def _read_costs(self, data: Any, path: str) -> CohereCosts:
        problems_before = self.problem_count
        costs = self.read_eps_values(data, path)
        orders = self._schema.orders
        if self.problem_count == problems_before and len(costs) != len(orders):
            self.report("C007", path, f"{len(costs)} costs for {len(orders)} orders")
        return tuple(None if cost >= SATURATION else cost for cost in costs)

    def _check_units(self, names: Iterable[str], path: str) -> None:
        for name in names:
            if name not in self._schema.units:
                self.report("C004", path, f"the schema has no unit `{shorten(name)}`")

    def _read_intervals(self, data: Any, path: str) -> CohereIntervals:
        return tuple(self.read_list(data, path, self.read_interval))

    def _read_selection(self, data: Any, path: str) -> dict[str, CohereIntervals]:
        """Read intervals by unit; a list without units applies to every unit of the schema."""
        if data is None:
            return {}
        if isinstance(data, list | tuple):
            return dict.fromkeys(self._schema.units, self._read_intervals(data, path))
        selection = self.read_map(data, path, self._read_intervals)
        self._check_units(selection, path)
        return selection

    def _read_dnf(self, data: Any, path: str) -> Dnf:
        conjunctions, conjunctions_path = self.field(data, "conjunctions", path)
        return tuple(self.read_list(conjunctions, conjunctions_path, self._read_conjunction))

    def _read_conjunction(self, data: Any, path: str) -> Conjunction:
        predicates, predicates_path = self.field(data, "predicates", path)
        tests = self.read_map(predicates, predicates_path, lambda test, _: test)
        return {
            name: self._read_test(test, f"{predicates_path}.{name}", name)
            for name, test in tests.items()
        }

    def _read_test(self, data: Any, path: str, attribute: str) -> CohereTest:
        domain = self._schema.domains.get(attribute)
        if domain is None:
            self.report("C004", path, f"the schema has no attribute `{shorten(attribute)}`")
        if not isinstance(data, Mapping) or len(data) != 1 or not set(data) <= set(_TEST_KINDS):
            self.report_type(path, f"one of {', '.join(_TEST_KINDS)}", data)
            return In(())
        ((kind, operand),) = data.items()
        if kind == "Between":
            first, last = self.read_interval(operand, path)
            self._check_range(first, last, domain, path)
            return Between(first, last)
        if kind == "In":
            values = tuple(self.read_list(operand, path, self.read_value))
        else:
            values = (self.read_value(operand, path),)
        for value in values:
            self._check_value(value, domain, path)
        if kind == "In":
            return In(values)
        return Eq(values[0]) if kind == "Eq" else Neq(values[0])

    def _check_range(self, first: int, last: int, domain: CohereDomain | None, path: str) -> None:
        """Report a range that is not within its domain; an unknown domain is already reported."""
        inside = isinstance(domain, CohereRange) and domain.first <= first and last <= domain.last
        if domain is not None and not inside:
            self.report("C005", path, f"`{first} to {last}` is not in the domain")

    def _check_value(self, value: CohereValue, domain: CohereDomain | None, path: str) -> None:
        """Report a value outside of its domain; an unknown domain is already reported."""
        if isinstance(domain, CohereRange):
            inside = isinstance(value, int) and domain.first <= value <= domain.last
        else:
            inside = domain is None or value in domain
        if not inside:
            self.report("C005", path, f"`{shorten(value)}` is not in the domain")

    def _read_section(self, data: Any, path: str) -> CohereSection:
        budget = self._read_budget(*self.field(data, "total_budget", path))
        return CohereSection(budget, self._read_dnf(*self.field(data, "dnf", path)))

    def _read_budget(self, data: Any, path: str) -> EpsilonDelta:
        inner, inner_path = self.field(data, "EpsDeltaDp", path)
        epsilon = self.read_amount(*self.field(inner, "eps", inner_path))
        delta = self.read_amount(*self.field(inner, "delta", inner_path))
        if delta >= 1:
            self.report("C003", f"{inner_path}.delta", "δ must be below 1")
        return EpsilonDelta(epsilon, delta)
