"""Cohere's parsed JSON → frozen values, or every problem with its place.

Keys that the shape does not have are passed over: they do not say who is charged how much. All else
is strict: an unknown attribute, unit or value is a problem, never "no match".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import isfinite
from typing import Any, TypeVar

from dpolicy.errors import InvalidValue
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
    CohereValue,
    Conjunction,
    Dnf,
    Eq,
    In,
    Intervals,
    Neq,
)
from dpolicy.policy.model import DEFAULT_MAX_RULES
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import SATURATION
from dpolicy.releases.regions import MAX_PARTITION_VALUES

Problems = tuple[InvalidValue, ...]
Read = TypeVar("Read")


def read_schema(
    data: Any, orders: Sequence[Fraction] | None = None
) -> tuple[CohereSchema | None, Problems]:
    """`schema.json` → the schema; without `orders` its `eps_values` are the orders themselves."""
    reading = _Reading()
    read = reading.schema(data, orders)
    return reading.result(read)


def read_requests(
    data: Any, schema: CohereSchema
) -> tuple[tuple[CohereRequest, ...] | None, Problems]:
    """`requests_N.json` → its requests, every name looked up in the schema."""
    reading = _Reading()
    read = reading.read_list(data, "requests", lambda item, at: reading.request(item, at, schema))
    reading.distinct((request.id for request in read), "requests", "request_id")
    return reading.result(read)


def read_blocks(data: Any, schema: CohereSchema) -> tuple[tuple[CohereBlock, ...] | None, Problems]:
    """`blocks_N.json` → its blocks, every name looked up in the schema."""
    reading = _Reading()
    read = reading.read_list(data, "blocks", lambda item, at: reading.block(item, at, schema))
    reading.distinct((block.id for block in read), "blocks", "id")
    return reading.result(read)


#: What stands where a key is missing; that was told already.
_MISSING = object()


class _Reading:
    """Takes values out of parsed JSON; a stand-in and a problem where there is none."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def result(self, read: Read) -> tuple[Read | None, Problems]:
        problems = tuple(InvalidValue(code, message) for message, code in self.told.items())
        return (None if problems else read), problems

    def wrong(self, code: str, at: str, message: str) -> None:
        self.told.setdefault(f"{at}: {message}", code)

    # Plain values

    def field(self, data: Any, key: str, at: str) -> tuple[Any, str]:
        """What stands under a key, and its place."""
        place = f"{at}.{key}" if at else key
        if data is _MISSING:
            return _MISSING, place
        if not isinstance(data, Mapping):
            self.wrong("C001", at or "the file", f"a map is expected, not `{_short(data)}`")
            return _MISSING, place
        if key not in data:
            self.wrong("C002", at or "the file", f"`{key}` is missing")
        return data.get(key, _MISSING), place

    def optional(self, data: Any, key: str, at: str) -> tuple[Any, str]:
        """The same for a key that may be missing or null: None."""
        return (data.get(key) if isinstance(data, Mapping) else None), f"{at}.{key}"

    def read_list(self, data: Any, at: str, read: Callable[[Any, str], Read]) -> tuple[Read, ...]:
        if data is _MISSING:
            return ()
        if not isinstance(data, list | tuple):
            self.wrong("C001", at, f"a list is expected, not `{_short(data)}`")
            return ()
        return tuple([read(item, f"{at}[{n}]") for n, item in enumerate(data)])

    def read_map(self, data: Any, at: str, read: Callable[[Any, str], Read]) -> dict[str, Read]:
        if data is _MISSING:
            return {}
        if not isinstance(data, Mapping):
            self.wrong("C001", at, f"a map is expected, not `{_short(data)}`")
            return {}
        return {str(key): read(item, f"{at}.{key}") for key, item in data.items()}

    def read_integer(self, data: Any, at: str, least: int = -MAX_PARTITION_VALUES) -> int:
        if (
            isinstance(data, int)
            and not isinstance(data, bool)
            and least <= data <= MAX_PARTITION_VALUES
        ):
            return data
        if data is not _MISSING:
            limits = f"from {least} to {MAX_PARTITION_VALUES}"
            self.wrong("C001", at, f"a whole number {limits} is expected, not `{_short(data)}`")
        return max(least, 0)

    def number(self, data: Any, at: str) -> Fraction:
        """A number that is not negative; a float is the decimal it prints."""
        known = isinstance(data, int | float | Fraction | Decimal) and not isinstance(data, bool)
        if known and isfinite(data) and data >= 0:
            return Fraction(repr(data)) if isinstance(data, float) else Fraction(data)
        if data is not _MISSING:
            self.wrong("C003", at, f"a number of at least 0 is expected, not `{_short(data)}`")
        return Fraction(0)

    def text(self, data: Any, at: str) -> str:
        if isinstance(data, str) and data:
            return data
        if data is not _MISSING:
            self.wrong("C001", at, f"a name is expected, not `{_short(data)}`")
        return ""

    def value(self, data: Any, at: str) -> CohereValue:
        return data if isinstance(data, str) else self.read_integer(data, at)

    def ends(self, data: Any, at: str) -> tuple[int, int]:
        """The ends of a range or interval, as {min, max} or as a pair."""
        if isinstance(data, list | tuple) and len(data) == 2:
            data = {"min": data[0], "max": data[1]}
        first, last = (self.read_integer(*self.field(data, key, at)) for key in ("min", "max"))
        if first > last:
            self.wrong("C003", at, f"there is nothing from {first} to {last}")
        return first, last

    def distinct(self, names: Iterable[object], at: str, what: str) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                self.wrong("C006", at, f"the {what} `{_short(name)}` stands {count} times")

    # What the files hold

    def schema(self, data: Any, orders: Sequence[Fraction] | None) -> CohereSchema:
        named = self.read_list(*self.field(data, "attributes", ""), self.attribute)
        self.distinct((name for name, _ in named), "attributes", "attribute")
        units = self.read_list(*self.field(data, "privacy_units", ""), self.text)
        self.distinct(units, "privacy_units", "unit")
        window = self.read_integer(*self.field(data, "block_sliding_window_size", ""), 1)
        given = self.eps_values(*self.field(data, "accounting_type", ""))
        known = self.orders(given, orders)
        return CohereSchema(dict(named), units, window, known)

    def attribute(self, data: Any, at: str) -> tuple[str, CohereDomain]:
        name = self.text(*self.field(data, "name", at))
        said, place = self.field(data, "value_domain", at)
        if not isinstance(said, list | tuple):
            first, last = self.ends(said, place)
            if name == RULES and last - first >= DEFAULT_MAX_RULES:
                self.wrong("C003", place, f"there are more than {DEFAULT_MAX_RULES} rules")
            return name, CohereRange(first, last)
        values = self.read_list(said, place, self.value)
        self.distinct(map(str, values), place, "value")
        if not values:
            self.wrong("C003", place, "a domain needs a value")
        return name, values

    def eps_values(self, data: Any, at: str) -> tuple[Fraction, ...]:
        """The amounts of {Rdp: {eps_values}}."""
        inner, place = self.field(data, "Rdp", at)
        return self.read_list(*self.field(inner, "eps_values", place), self.number)

    def orders(
        self, given: tuple[Fraction, ...], orders: Sequence[Fraction] | None
    ) -> tuple[Fraction, ...]:
        """The orders that are said, or those of the schema if that is what they are."""
        at = "accounting_type.Rdp.eps_values"
        known = given if orders is None else tuple(orders)
        rising = all(low < high for low, high in pairwise((Fraction(1), *known)))
        if self.told:
            return known
        if not known or not rising:
            self.wrong("C008", at, "these are not rising orders above 1; help: give `orders`")
        elif len(known) != len(given):
            self.wrong("C007", at, f"{len(given)} values for {len(known)} orders")
        return known

    def request(self, data: Any, at: str, schema: CohereSchema) -> CohereRequest:
        said, place = self.field(data, "request_cost", at)
        costs = self.read_map(said, place, lambda item, where: self.costs(item, where, schema))
        if said is not _MISSING and not costs:
            self.wrong("C011", place, "a request needs the cost for a unit")
        self.units(costs, place, schema)
        names, named_at = self.optional(data, "attributes", at)
        return CohereRequest(
            self.read_integer(*self.field(data, "request_id", at), 0),
            self.read_integer(*self.field(data, "created", at), 0),
            self.read_integer(*self.field(data, "profit", at), 0),
            costs,
            self.dnf(*self.field(data, "dnf", at), schema),
            self.selection(*self.optional(data, "privacy_unit_selection", at), schema),
            () if names is None else self.read_list(names, named_at, self.text),
        )

    def costs(self, data: Any, at: str, schema: CohereSchema) -> CohereCosts:
        before = len(self.told)
        given = self.eps_values(data, at)
        if len(self.told) == before and len(given) != len(schema.orders):
            self.wrong("C007", at, f"{len(given)} costs for {len(schema.orders)} orders")
        return tuple(None if cost >= SATURATION else cost for cost in given)

    def units(self, names: Iterable[str], at: str, schema: CohereSchema) -> None:
        for name in names:
            if name not in schema.units:
                self.wrong("C004", at, f"the schema has no unit `{_short(name)}`")

    def selection(self, data: Any, at: str, schema: CohereSchema) -> dict[str, Intervals]:
        """Intervals by unit; a list without units is meant for all of them."""
        if data is None:
            return {}
        if isinstance(data, list | tuple):
            return dict.fromkeys(schema.units, self.read_list(data, at, self.ends))
        chosen = self.read_map(data, at, lambda item, place: self.read_list(item, place, self.ends))
        self.units(chosen, at, schema)
        return chosen

    def dnf(self, data: Any, at: str, schema: CohereSchema) -> Dnf:
        def conjunction(item: Any, place: str) -> Conjunction:
            tests, where = self.field(item, "predicates", place)
            named = self.read_map(tests, where, lambda test, _: test)
            return {name: self.test(test, name, where, schema) for name, test in named.items()}

        return self.read_list(*self.field(data, "conjunctions", at), conjunction)

    def test(self, data: Any, name: str, place: str, schema: CohereSchema) -> CohereTest:
        at, domain = f"{place}.{name}", schema.domains.get(name)
        if domain is None:
            self.wrong("C004", at, f"the schema has no attribute `{_short(name)}`")
        if not isinstance(data, Mapping) or len(data) != 1 or not set(data) <= _TESTS:
            known = ", ".join(sorted(_TESTS))
            self.wrong("C001", at, f"one of {known} is expected, not `{_short(data)}`")
            return In(())
        ((kind, said),) = data.items()
        if kind == "Between":
            first, last = self.ends(said, at)
            self.within(range(first, last + 1), domain, at)
            return Between(first, last)
        values = self.read_list(said, at, self.value) if kind == "In" else (self.value(said, at),)
        for value in values:
            self.within(value, domain, at)
        if kind == "In":
            return In(values)
        return Eq(values[0]) if kind == "Eq" else Neq(values[0])

    def within(self, value: CohereValue | range, domain: CohereDomain | None, at: str) -> None:
        """Report what lies outside of a domain."""
        match domain, value:
            case CohereRange(first=first, last=last), int():
                inside = first <= value <= last
            case CohereRange(first=first, last=last), range():
                inside = first <= value.start and value.stop <= last + 1
            case tuple(), str() | int():
                inside = value in domain
            case _:
                inside = domain is None
        if not inside:
            shown = f"{value.start} to {value.stop - 1}" if isinstance(value, range) else value
            self.wrong("C005", at, f"`{_short(shown)}` is not in the domain")

    def block(self, data: Any, at: str, schema: CohereSchema) -> CohereBlock:
        unit, unit_at = self.field(data, "privacy_unit", at)
        name = self.text(unit, unit_at)
        self.units([name] if name else [], unit_at, schema)
        retired, retired_at = self.optional(data, "retired", at)
        created = self.read_integer(*self.field(data, "created", at), 0)
        chosen, chosen_at = self.optional(data, "privacy_unit_selection", at)
        total, total_at = self.optional(data, "total_budget", at)
        sections, sections_at = self.optional(data, "budget_by_section", at)
        charged, charged_at = self.optional(data, "request_ids", at)
        return CohereBlock(
            self.read_integer(*self.field(data, "id", at), 0),
            name,
            created,
            None if retired is None else self.read_integer(retired, retired_at, created),
            None if chosen is None else self.read_list(chosen, chosen_at, self.ends),
            None if total is None else self.budget(total, total_at),
            self.read_list(sections or (), sections_at, lambda s, p: self.section(s, p, schema)),
            self.read_list(charged or (), charged_at, lambda i, p: self.read_integer(i, p, 0)),
        )

    def section(self, data: Any, at: str, schema: CohereSchema) -> CohereSection:
        budget = self.budget(*self.field(data, "total_budget", at))
        return CohereSection(budget, self.dnf(*self.field(data, "dnf", at), schema))

    def budget(self, data: Any, at: str) -> EpsilonDelta:
        said, place = self.field(data, "EpsDeltaDp", at)
        epsilon = self.number(*self.field(said, "eps", place))
        delta = self.number(*self.field(said, "delta", place))
        if delta >= 1:
            self.wrong("C003", f"{place}.delta", "δ must be below 1")
        return EpsilonDelta(epsilon, delta)


_TESTS = {"Eq", "Neq", "Between", "In"}


def _short(data: object) -> str:
    """What was given, cut to a length that can be read."""
    shown = str(data)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
