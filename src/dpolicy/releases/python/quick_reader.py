"""Quick reader: a well-formed release body → the `Release` of the strict reader, or None.

One typed walk reads Python values or decoded JSON, without nodes and positions. The reader is never
sure of a value that it does not know, and then returns None: the strict reader (`release_parser`)
reads the body, and makes all diagnostics. Mechanisms are parsed by the same code as there
(`mechanism_from_body`). A property test compares both readers (decision 0029).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvalidValue
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import mechanism_from_body
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.regions import MAX_PARTITION_VALUES
from dpolicy.releases.release import Release, mark_parsed
from dpolicy.text.decimals import format_decimal
from dpolicy.text.shapes import IDENTITY, NAME
from dpolicy.text.yaml_reader import MAX_DIGITS, MAX_EXPONENT

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_RELATIONS = frozenset(str(relation) for relation in NeighbouringRelation)
_SEQUENCES = (list, tuple)
_COLLECTIONS = (list, tuple, set, frozenset)
#: Integers below this have few enough digits for any reader.
_SAFE_INTEGER = 10**20
_MAX_UTILITY = 10**12


class _Unsure(Exception):
    """Signal that the strict reader must read the body."""


def read_plain(body: Mapping[str, Any]) -> Release | None:
    """Return the release of a mapping of Python values; None if the strict reader must read it."""
    try:
        return _read_release(body, is_sorted=True)
    except (_Unsure, InvalidValue):
        return None


def read_json(data: bytes) -> Release | None:
    """Return the release of JSON text in UTF-8; None if the strict reader must read it."""
    fields = decode_json(data)
    return None if fields is None else read_decoded_body(fields)


def read_decoded_body(fields: Any) -> Release | None:
    """Return the release of a value of `decode_json`; None if the strict reader must read it."""
    try:
        return _read_release(fields, is_sorted=False)
    except (_Unsure, InvalidValue):
        return None


def decode_json(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object with exact fractions as numbers; None if the strict reader must read it.

    That is the case for text that is no JSON object in UTF-8, a duplicate key, NaN, a number with
    too many digits, and text that is nested too deeply.
    """
    try:
        fields = _DECODER.decode(data.decode("utf-8"))
    except (_Unsure, ValueError, RecursionError):
        return None
    return fields if type(fields) is dict else None


def _decode_map(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(entries)
    if len(fields) != len(entries):
        raise _Unsure
    return fields


def _decode_integer(text: str) -> Fraction:
    if len(text) > MAX_DIGITS:
        raise _Unsure
    return Fraction(int(text))


def _decode_decimal(text: str) -> Fraction:
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise _Unsure
    return Fraction(Decimal(text))


def _refuse_constant(_constant: str) -> Any:
    raise _Unsure


_DECODER = json.JSONDecoder(
    object_pairs_hook=_decode_map,
    parse_int=_decode_integer,
    parse_float=_decode_decimal,
    parse_constant=_refuse_constant,
)


def _read_release(fields: Any, is_sorted: bool) -> Release:
    """Return the release of a mapping. Its keys are sorted if `is_sorted`, else kept in order."""
    _check_keys(fields, _RELEASE_KEYS)
    release_id, mechanisms = fields.get("release"), fields.get("mechanisms")
    body: dict[str, Any] = {"release": _name(release_id)}
    by = ""
    if "by" in fields:
        by = body["by"] = _identity(fields["by"])
    utility = None
    if "utility" in fields:
        utility = body["utility"] = _utility(fields["utility"])
    if type(mechanisms) not in _SEQUENCES or not mechanisms:
        raise _Unsure
    bodies = body["mechanisms"] = [_mechanism_body(item, is_sorted) for item in mechanisms]
    requests = []
    for position, own in enumerate(bodies, 1):
        request, problems = mechanism_from_body(own, position)
        if request is None or problems:
            raise _Unsure
        requests.append(request)
    return mark_parsed(Release(body["release"], by, utility, tuple(requests), body))


def _mechanism_body(fields: Any, is_sorted: bool) -> dict[str, Any]:
    """Return the plain values of a mechanism, as the strict reader writes them."""
    _check_keys(fields, _MECHANISM_KEYS)
    if "mechanism" not in fields:
        raise _Unsure
    body: dict[str, Any] = {}
    if "name" in fields:
        body["name"] = _name(fields["name"])
    body["mechanism"] = _parameters(fields["mechanism"], is_sorted)
    if "unit" in fields:
        body["unit"] = _name(fields["unit"])
    if "relation" in fields:
        body["relation"] = _relation(fields["relation"])
    if "additive" in fields and _boolean(fields["additive"]):
        body["additive"] = True
    if "also" in fields and (also := _entries(fields["also"], is_sorted)):
        body["also"] = {_name(unit): _parameters(values, is_sorted) for unit, values in also}
    if "attributes" in fields and (attributes := _names(fields["attributes"])):
        body["attributes"] = attributes
    if "labels" in fields and (labels := _entries(fields["labels"], is_sorted)):
        body["labels"] = {_name(label): _label(value) for label, value in labels}
    if "where" in fields:
        body["where"] = _boxes(fields["where"], is_sorted)
    if "time" in fields and (period := _period(fields["time"])):
        body["time"] = period
    return body


_RELEASE_KEYS = frozenset({"release", "by", "utility", "mechanisms"})
_MECHANISM_KEYS = frozenset(
    {"name", "mechanism", "unit", "relation", "additive"}
    | {"also", "attributes", "labels", "where", "time"}
)
_RANGE_KEYS = frozenset({"from", "to"})


def _check_keys(fields: Any, keys: frozenset[str]) -> None:
    if type(fields) is not dict:
        raise _Unsure
    for key in fields:
        # an enumeration may equal a key and have another text
        if type(key) is not str or key not in keys:
            raise _Unsure


def _entries(fields: Any, is_sorted: bool) -> Iterable[tuple[str, Any]]:
    if type(fields) is not dict:
        raise _Unsure
    for key in fields:
        if type(key) is not str:
            raise _Unsure
    return sorted(fields.items(), key=_first) if is_sorted else list(fields.items())


def _first(entry: tuple[str, Any]) -> str:
    return entry[0]


def _name(value: Any) -> str:
    if type(value) is not str or NAME.fullmatch(value) is None:
        raise _Unsure
    return value


def _names(value: Any) -> list[str]:
    if type(value) not in _COLLECTIONS:
        raise _Unsure
    return sorted({_name(item) for item in value})


def _identity(value: Any) -> str:
    if type(value) is not str or IDENTITY.fullmatch(value) is None:
        raise _Unsure
    return value


def _relation(value: Any) -> str:
    if type(value) is not str or value not in _RELATIONS:
        raise _Unsure
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unsure
    return value


def _utility(value: Any) -> Fraction:
    number = _number(value)
    if not 0 <= number <= _MAX_UTILITY:
        raise _Unsure
    return number


def _label(value: Any) -> str | list[str]:
    return _name(value) if type(value) is str else _names(value)


def _parameters(fields: Any, is_sorted: bool) -> dict[str, Any]:
    """Return the parameters of a mechanism; `parse_mechanism` checks them."""
    return {
        name: value
        if type(value) is str or type(value) is bool
        else _curve(value, is_sorted)
        if type(value) is dict
        else _number(value)
        for name, value in _entries(fields, is_sorted)
    }


def _curve(fields: dict[Any, Any], is_sorted: bool) -> dict[str, Fraction]:
    """Return the values of a Rényi curve; orders of a Python value may be numbers."""
    curve = {
        order if type(order) is str else format_decimal(_number(order)): _number(value)
        for order, value in fields.items()
    }
    if len(curve) != len(fields):
        raise _Unsure
    return dict(sorted(curve.items())) if is_sorted else curve


def _number(value: Any) -> Fraction:
    """Return an exact number; a float is the decimal that it prints."""
    kind = type(value)
    if kind is int and -_SAFE_INTEGER < value < _SAFE_INTEGER:
        return Fraction(value)
    if kind is float:
        if value - value != 0:  # infinite or NaN
            raise _Unsure
        return Fraction(Decimal(repr(value)))
    if kind is Fraction and _is_short(value):
        exact: Fraction = value
        return exact
    return _other_number(value)


def _is_short(value: Fraction) -> bool:
    """Return whether a fraction is a decimal of at most 40 digits, with integers of Python."""
    numerator, denominator = value.numerator, value.denominator
    return (
        type(numerator) is int
        and type(denominator) is int
        and -_SAFE_INTEGER < numerator < _SAFE_INTEGER
        and _SAFE_INTEGER % denominator == 0
    )


def _other_number(value: Any) -> Fraction:
    """Return a number of any other type by way of its text, as the strict reader does."""
    number = None if isinstance(value, str) else to_plain_body(value)
    if type(number) is not Fraction:
        raise _Unsure
    return _decode_decimal(format_decimal(number))


def _boxes(value: Any, is_sorted: bool) -> list[dict[str, Any]]:
    boxes = (value,) if type(value) is dict else value
    if type(boxes) not in _SEQUENCES or not boxes:
        raise _Unsure
    return [
        {_name(partition): _selection(part) for partition, part in _entries(box, is_sorted)}
        for box in boxes
    ]


def _selection(value: Any) -> list[str] | dict[str, Fraction]:
    """Return listed values as a list, and a range as a map of its ends."""
    if type(value) is str:
        return [_name(value)]
    if type(value) is not dict:
        if not (names := _names(value)):
            raise _Unsure
        return names
    _check_keys(value, _RANGE_KEYS)
    if len(value) != 2:
        raise _Unsure
    return {"from": _whole(value["from"]), "to": _whole(value["to"])}


def _whole(value: Any) -> Fraction:
    number = _number(value)
    if number.denominator != 1 or abs(number.numerator) > MAX_PARTITION_VALUES:
        raise _Unsure
    return number


def _period(fields: Any) -> dict[str, str]:
    _check_keys(fields, _RANGE_KEYS)
    return {key: _day(fields[key]) for key in ("from", "to") if key in fields}


def _day(value: Any) -> str:
    if type(value) is date:
        return value.isoformat()
    if type(value) is not str or _DATE.fullmatch(value) is None:
        raise _Unsure
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise _Unsure from None
