"""Checks of recorded plain values, derived from the shapes that read files.

A recorded value has already been read by its shape once, and must stay readable when a later
version narrows a name pattern or a limit. `value_check` therefore checks the structure only: types,
required keys, choices and list lengths. Keys that a record does not name may hold any value.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import singledispatch
from typing import Any

from dpolicy.errors import InvariantBroken
from dpolicy.text.shapes import (
    BooleanShape,
    ChoiceShape,
    ListShape,
    MapShape,
    NameShape,
    NumberShape,
    RecordShape,
    TextShape,
)

#: Returns whether a plain value (text, number, bool, None, list or dict) has the shape.
ValueCheck = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Return whether a recorded value is text."""
    return type(value) is str


def is_number(value: Any) -> bool:
    """Return whether a recorded value is a number, decoded exactly or as plain JSON."""
    return type(value) in _NUMBER_TYPES


def is_boolean(value: Any) -> bool:
    """Return whether a recorded value is true or false."""
    return type(value) is bool


_NUMBER_TYPES = (Fraction, int, float)


@singledispatch
def value_check(shape: object) -> ValueCheck:
    """Compile the check of the plain values that a shape records.

    Compile once and keep the result: a check runs for every record that is read. A module that
    defines another recorded shape registers it here; raise `InvariantBroken` for any other.
    """
    raise InvariantBroken(f"{type(shape).__name__} describes no recorded value")


@value_check.register
def _(_shape: TextShape | NameShape) -> ValueCheck:
    return is_text


@value_check.register
def _(_shape: NumberShape) -> ValueCheck:
    return is_number


@value_check.register
def _(_shape: BooleanShape) -> ValueCheck:
    return is_boolean


@value_check.register
def _(shape: ChoiceShape) -> ValueCheck:
    keywords = shape.words
    return lambda value: value in keywords


@value_check.register
def _(shape: ListShape) -> ValueCheck:
    is_item, minimum = value_check(shape.shape), shape.least
    return lambda value: type(value) is list and len(value) >= minimum and all(map(is_item, value))


@value_check.register
def _(shape: MapShape) -> ValueCheck:
    is_item = value_check(shape.shape)
    return lambda value: type(value) is dict and all(map(is_item, value.values()))


@value_check.register
def _(shape: RecordShape) -> ValueCheck:
    checks = {key: value_check(field.shape) for key, field in shape.fields.items()}
    required = {key for key, field in shape.fields.items() if field.required}
    return lambda value: (
        type(value) is dict
        and required <= value.keys()
        and all(checks[key](item) for key, item in value.items() if key in checks)
    )
