"""Python values → the plain values of a release body: text, exact numbers, booleans, lists, maps.

A number of any common type is accepted: those of Python and NumPy, `Decimal` and `Fraction`. A
float counts as the decimal that it prints, which is the number that its author wrote. NumPy is
never imported: a program that did not load it has none of its values.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.text.decimals import MAX_DECIMAL_PLACES, format_decimal

#: Largest decimal exponent of a number; a file has smaller ones (`yaml_reader`).
_MAX_EXPONENT = MAX_DECIMAL_PLACES

#: NumPy dates of these units are not one day.
_LONG_DATE_UNITS = {"Y": "a year", "M": "a month", "W": "a week"}


def to_plain_body(value: Any, path: str = "release") -> Any:
    """Convert Python values to the plain values of a body: exact numbers, text keys, lists.

    Raise `InvalidValue` for a number that is not finite or has no finite decimal, for a time with a
    time zone, for a NumPy date or duration that is not one day, for two keys with the same text,
    and for a value that contains itself. `path` names the value in the message.
    """
    try:
        return _plain_value(value, path)
    except RecursionError:
        message = f"`{path}` contains itself, or is nested too deeply"
        raise InvalidValue("P002", f"{message}; help: give each mapping once") from None


def _plain_value(value: Any, path: str) -> Any:
    value = _without_numpy(value, path)
    if isinstance(value, Mapping):
        return _plain_map(value, path)
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain_value(item, f"{path}[{number}]") for number, item in enumerate(value)]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Real | Decimal):
        return _exact_number(value, path)
    if isinstance(value, date):
        return _plain_day(value, path)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        message = f"`{path}` is a `{type(value).__name__}`, not a list"
        raise InvalidValue("P007", f"{message}; help: give a list of names")
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _plain_map(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in values.items():
        text = _plain_key(key, path)
        if text in plain:
            raise InvalidValue("P004", f"`{path}` has the key `{text}` twice")
        plain[text] = _plain_value(item, f"{path}.{text}")
    return plain


def _plain_key(key: Any, path: str) -> str:
    """Convert a key to text. Orders of a Rényi curve may be numbers."""
    key = _without_numpy(key, path)
    is_number = isinstance(key, Real | Decimal) and not isinstance(key, bool)
    return format_decimal(_exact_number(key, path)) if is_number else str(key)


def _exact_number(value: Any, path: str) -> Fraction:
    """Return the number that a value prints. Raise `InvalidValue` if it has no finite decimal."""
    if isinstance(value, Rational):
        # NumPy integers have numerators of NumPy, which no encoder of JSON knows.
        exact = Fraction(int(value.numerator), int(value.denominator))
        return _with_finite_decimal(exact, path)
    if isinstance(value, Decimal):
        return _decimal_number(value, path)
    if not math.isfinite(value):
        raise _infinite_number_error(value, path)
    return Fraction(repr(float(value)) if isinstance(value, float) else str(value))


def _decimal_number(value: Decimal, path: str) -> Fraction:
    if not value.is_finite():
        raise _infinite_number_error(value, path)
    if value.adjusted() > _MAX_EXPONENT:
        raise _large_number_error(path)
    places = value.as_tuple().exponent
    if isinstance(places, int) and places < -MAX_DECIMAL_PLACES:
        raise InvalidValue("M006", f"`{path}` has more than {MAX_DECIMAL_PLACES} decimal places")
    return Fraction(value)


def _infinite_number_error(value: object, path: str) -> InvalidValue:
    return InvalidValue("M006", f"`{path}` is `{value}`, which is not a finite number")


def _large_number_error(path: str) -> InvalidValue:
    help_ = "write a smaller number"
    return InvalidValue(
        "M006", f"`{path}` is too large: 1e{_MAX_EXPONENT + 1} or more; help: {help_}"
    )


def _with_finite_decimal(value: Fraction, path: str) -> Fraction:
    if abs(value) >= 10 ** (_MAX_EXPONENT + 1):
        raise _large_number_error(path)
    if value.denominator > 10**MAX_DECIMAL_PLACES:
        raise InvalidValue("M006", f"`{path}` has more than {MAX_DECIMAL_PLACES} decimal places")
    try:
        format_decimal(value)
    except InvariantBroken:
        message = f"`{path}` is `{value}`, which has no finite decimal"
        help_ = "round it to a decimal in the direction of more loss"
        raise InvalidValue("M006", f"{message}; help: {help_}") from None
    return value


def _plain_day(value: date, path: str) -> str:
    """Return the day of a date or of a time without a time zone, such as a pandas `Timestamp`."""
    if not isinstance(value, datetime):
        return value.isoformat()
    if value != value:  # pandas.NaT is a datetime
        raise InvalidValue("P009", f"`{path}` is `{value}`, which is no day")
    if value.tzinfo is not None:
        message = f"`{path}` is `{value.isoformat()}`; its day depends on the time zone"
        raise InvalidValue("P009", f"{message}; help: pass a date")
    return value.date().isoformat()


def _without_numpy(value: Any, path: str) -> Any:
    """Return the Python value of a NumPy truth value, day or array; other values stay.

    Raise `InvalidValue` for a duration, and for a date that is not one day.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if isinstance(value, numpy.ndarray):
        return list(value) if value.ndim else _without_numpy(value[()], path)
    if isinstance(value, numpy.bool_):
        return bool(value)
    if isinstance(value, numpy.timedelta64):
        raise InvalidValue("P009", f"`{path}` is the duration `{value}`; help: pass a day")
    if isinstance(value, numpy.datetime64):
        return _numpy_day(value, path)
    return value


def _numpy_day(value: Any, path: str) -> Any:
    numpy = sys.modules["numpy"]
    if numpy.isnat(value):
        raise InvalidValue("P009", f"`{path}` is `{value}`, which is no day")
    unit = numpy.datetime_data(value.dtype)[0]
    if unit in _LONG_DATE_UNITS:
        message = f"`{path}` is `{value}`, {_LONG_DATE_UNITS[unit]} of NumPy and not a day"
        raise InvalidValue("P009", f"{message}; help: pass the first or the last day")
    return value.astype("datetime64[D]").item()
