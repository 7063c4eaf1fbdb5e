"""Python values → the plain values of a release body: text, exact numbers, booleans, lists, maps.

A number of any common type is accepted: those of Python and NumPy, `Decimal` and `Fraction`. A
float counts as the decimal that it prints, which is the number that its author wrote. NumPy is
never imported: a program that did not load it has none of its values.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

from dpolicy.errors import InvalidValue, InvariantBroken
from dpolicy.text.decimals import format_decimal


def to_plain_body(value: Any, path: str = "release") -> Any:
    """Convert Python values to the plain values of a body: exact numbers, text keys, lists.

    Raise `InvalidValue` for a number that is not finite or has no finite decimal, for a time with a
    time zone, and for two keys with the same text. `path` names the value in the message.
    """
    value = _without_numpy(value)
    if isinstance(value, Mapping):
        return _plain_map(value, path)
    if isinstance(value, list | tuple | set | frozenset):
        items = [to_plain_body(item, f"{path}[{number}]") for number, item in enumerate(value)]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Real | Decimal):
        return _exact_number(value, path)
    if isinstance(value, date):
        return _plain_day(value, path)
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _plain_map(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in values.items():
        text = _plain_key(key, path)
        if text in plain:
            raise InvalidValue("P004", f"`{path}` has the key `{text}` twice")
        plain[text] = to_plain_body(item, f"{path}.{text}")
    return plain


def _plain_key(key: Any, path: str) -> str:
    """Convert a key to text. Orders of a Rényi curve may be numbers."""
    key = _without_numpy(key)
    is_number = isinstance(key, Real | Decimal) and not isinstance(key, bool)
    return format_decimal(_exact_number(key, path)) if is_number else str(key)


def _exact_number(value: Any, path: str) -> Fraction:
    """Return the number that a value prints. Raise `InvalidValue` if it has no finite decimal."""
    if isinstance(value, Integral):
        return Fraction(int(value))
    if isinstance(value, Rational):
        return _with_finite_decimal(Fraction(value), path)
    if not math.isfinite(value):
        raise InvalidValue("M006", f"`{path}` is `{value}`, which is not a finite number")
    return Fraction(repr(float(value)) if isinstance(value, float) else str(value))


def _with_finite_decimal(value: Fraction, path: str) -> Fraction:
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


def _without_numpy(value: Any) -> Any:
    """Return the Python value of a NumPy truth value, day or array; other values stay."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if isinstance(value, numpy.ndarray):
        return list(value) if value.ndim else _without_numpy(value[()])
    if isinstance(value, numpy.bool_):
        return bool(value)
    if isinstance(value, numpy.datetime64) and not numpy.isnat(value):
        return value.astype("datetime64[D]").item()
    return value
