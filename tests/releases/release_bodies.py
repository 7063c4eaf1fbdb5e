"""Strategies for release bodies: well-formed ones, and ones with one wrong or unusual value."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


class OtherText(str):
    """Text that equals a key, and prints otherwise, as enumerations with the base `str` do."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"other {super().__str__()}"


class KeyEnum(StrEnum):
    """Texts that equal a key, and print the same."""

    NAME = "name"


#: Positive decimals that every noise parameter and loss accepts.
DECIMALS = st.builds(
    lambda digits, places: Fraction(digits, 10**places), st.integers(1, 10**6), st.integers(0, 6)
)

#: The same value in another type, if the type can hold it exactly.
NUMBER_TYPES: list[Any] = [
    lambda value: value,
    lambda value: float(value),
    lambda value: np.float64(float(value)),
    lambda value: Decimal(value.numerator) / Decimal(value.denominator),
    lambda value: np.int64(int(value) + 1),
    lambda value: int(value) + 1,
]
NUMBERS = st.builds(lambda value, to_type: to_type(value), DECIMALS, st.sampled_from(NUMBER_TYPES))
NAMES = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_.:/ -]{0,8}[A-Za-z0-9_])?", fullmatch=True)
DAYS = st.dates(date(2000, 1, 1), date(2100, 1, 1))
PARTITIONS = st.one_of(
    NAMES,
    st.lists(NAMES, min_size=1, max_size=3),
    st.fixed_dictionaries({"from": st.integers(-9, 9), "to": st.integers(10, 10**12)}),
)
BOXES = st.dictionaries(NAMES, PARTITIONS, max_size=3)


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Return valid parameters of any kind, with numbers of any type."""
    kind = draw(st.sampled_from(sorted(MECHANISM_KINDS)))
    if kind == "declared":
        stated = draw(
            st.one_of(
                st.fixed_dictionaries({"epsilon": NUMBERS}, optional={"delta": st.just(1e-9)}),
                st.fixed_dictionaries({"rho": NUMBERS}, optional={"xi": NUMBERS}),
                st.fixed_dictionaries({"mu": NUMBERS}),
                st.sampled_from([{"renyi": {2: 0.5, 4: Fraction(1)}}, {"renyi": {"1.5": 1}}]),
            )
        )
        values: dict[str, Any] = {"kind": kind, **stated}
    else:
        values = {"kind": kind, **MECHANISM_KINDS[kind].example}
        for name in MECHANISM_KINDS[kind].noise_parameters:
            values[name] = draw(NUMBERS)
    if draw(st.booleans()):
        values["count"] = draw(st.integers(1, 1000))
    if draw(st.booleans()):
        values["data-dependent"] = False
    return values


def mechanisms() -> st.SearchStrategy[dict[str, Any]]:
    """Return valid mechanisms of a release."""
    return st.fixed_dictionaries(
        {"mechanism": parameters()},
        optional={
            "name": NAMES,
            "unit": NAMES,
            "relation": st.sampled_from([str(relation) for relation in NeighbouringRelation]),
            "additive": st.booleans(),
            "also": st.just({}),
            "attributes": st.one_of(st.lists(NAMES), st.sets(NAMES), st.lists(NAMES).map(tuple)),
            "labels": st.dictionaries(NAMES, st.one_of(NAMES, st.lists(NAMES)), max_size=3),
            "where": st.one_of(BOXES, st.lists(BOXES, min_size=1, max_size=2)),
            "time": st.one_of(
                st.just({}),
                st.builds(lambda day: {"from": day}, st.one_of(DAYS, DAYS.map(str))),
                st.builds(lambda day: {"to": str(day), "from": "1999-02-28"}, DAYS),
            ),
        },
    )


def releases() -> st.SearchStrategy[dict[str, Any]]:
    """Return well-formed bodies of releases."""
    restated = {
        "mechanism": {"kind": "gaussian", "sigma": 10},
        "also": {"b": {"sensitivity": 2.5}, "a": {"sensitivity": Fraction(5)}},
    }
    return st.fixed_dictionaries(
        {
            "release": NAMES,
            "mechanisms": st.one_of(
                st.lists(mechanisms(), min_size=1, max_size=2), st.just([restated])
            ),
        },
        optional={
            "by": st.sampled_from(["ann", "ann@example.org", "auth0|1", "x" * 255]),
            "utility": st.one_of(st.just(0), NUMBERS),
        },
    )


_THREE: Any = np.int64(3)
#: A fraction whose numerator is an integer of NumPy.
NUMPY_FRACTION = Fraction(_THREE)

ODD_NUMBERS: list[Any] = [
    *(10**20, -(10**20), 10**21, 10**60, 10**400, 10**1100, 5e-324, 1.7e308, -0.0),
    *(Fraction(1, 3), Fraction(1, 10**70), Fraction(10**30 + 1, 10**30), Fraction(1, 2**200)),
    *(NUMPY_FRACTION, Fraction(7, 8), Decimal("1e-1200"), Decimal("NaN"), Decimal(0)),
    *(np.float32(0.1), np.longdouble("0.1"), np.int8(3), np.bool_(True), np.array(2)),
]
ODD_TEXTS: list[Any] = [
    *(OtherText("name"), KeyEnum.NAME, NeighbouringRelation.CHANGE, np.str_("a"), b"a", object()),
    *("2026-02-30", "2026-W01-1", "20260102", "\u0662\u0660\u0662\u0666-01-02"),
    *("\ud800", "a\n", " a", "a" * 101),
    *(date(2026, 1, 2), datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
    *(np.datetime64("2026-01-02"), np.timedelta64(1, "D")),
]
ODD_COLLECTIONS: list[Any] = [
    *([], {}, (), [[]], [None], ["b", "a", "b"], [1, "a"], np.array(["b", "a"])),
    *({"from": 1}, {"from": 1, "to": 2}, {"from": 1.5, "to": 2}, {"from": "2026-01-02"}),
    *({"a": 1, 1: 2}, {1: 1, "1": 2}, {2: 1, "2": 1}, {True: 1}, {"renyi": {}}),
    {"to": "2026-01-01", "from": "2026-01-02"},
]


def wrong_values() -> st.SearchStrategy[Any]:
    """Return values that are wrong or unusual in some place of a body."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.floats(),
        st.integers(),
        st.fractions(),
        st.text(max_size=4),
        st.decimals(),
        NAMES,
        st.sampled_from([*ODD_NUMBERS, *ODD_TEXTS, *ODD_COLLECTIONS]),
    )


WRONG_KEYS = st.one_of(
    NAMES,
    st.sampled_from([*map(OtherText, ("name", "release", "sigma")), KeyEnum.NAME]),
    st.sampled_from([1, 2.5, None, True, "Name"]),
    st.sampled_from(["sigma", "delta", "renyi", "also", "where", "time", "by", "utility", "mode"]),
)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each map and list inside a value, with each of its keys or positions."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_in(value[key])


@st.composite
def wrong_releases(draw: st.DrawFn) -> dict[str, Any]:
    """Return bodies in which one or two values or keys were replaced, added or removed."""
    body = copy.deepcopy(draw(releases()))
    for _ in range(draw(st.integers(1, 2))):
        holder, key = draw(st.sampled_from(list(places_in(body))))
        change = draw(st.sampled_from(["replace", "remove", "add", "rename"]))
        if change == "replace":
            holder[key] = draw(wrong_values())
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            value = holder.pop(key) if change == "rename" else draw(wrong_values())
            holder[draw(WRONG_KEYS)] = value
        if not body:
            break
    return body
