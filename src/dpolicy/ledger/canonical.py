"""Canonical JSON: plain values ↔ bytes. Equal values have equal bytes, and numbers are exact.

The JSON has sorted keys, no spaces, and is UTF-8. A fraction is written as an exact decimal; a
fraction without a finite decimal is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvariantBroken
from dpolicy.text.decimals import format_decimal

#: Longer numbers are refused: numbers of policies and releases are far shorter.
MAX_DECIMAL_DIGITS = 2_000

#: Marks a number inside the text that the JSON library writes; see `encode_canonical`.
_MARK = "\x00"
_MARKED = re.compile(r'"\\u0000([^"]*)"')


def encode_canonical(value: object) -> bytes:
    """Return the canonical bytes of a value.

    The JSON library writes everything except exact numbers. A number is passed to it as a marked
    text, and the quotes and the mark are removed afterwards. If a text of the value also contains
    the mark, the counts differ, and the slower `canonical_text` encodes the value.

    Raise `InvariantBroken` for a value without a canonical form.
    """
    numbers = 0

    def plain(item: object) -> object:
        nonlocal numbers
        if isinstance(item, Fraction):
            if item.denominator == 1 and abs(item.numerator) < 10**21:
                return item.numerator
            numbers += 1
            return _MARK + format_decimal(item)
        if isinstance(item, Mapping):
            return dict(item)
        raise InvariantBroken(f"{type(item).__name__} has no canonical form")

    text = _encoder(plain).encode(value)
    if text.count("\\u0000") == numbers:
        return (_MARKED.sub(r"\1", text) if numbers else text).encode("utf-8")
    return canonical_text(value).encode("utf-8")


def _encoder(plain: Callable[[object], object]) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=plain, allow_nan=False
    )


def decode_canonical(data: bytes) -> Any:
    """Return the value of JSON bytes, with exact fractions as numbers. Raise `ValueError`."""
    return json.loads(
        data.decode("utf-8"),
        parse_float=_parse_number,
        parse_int=_parse_number,
        parse_constant=_reject_constant,
    )


def _parse_number(text: str) -> Fraction:
    """Parse an exact number. Raise `ValueError` for one too long for this code to have written."""
    _, _, exponent = text.lower().partition("e")
    if len(text) > MAX_DECIMAL_DIGITS or (exponent and abs(int(exponent)) > MAX_DECIMAL_DIGITS):
        raise ValueError(f"the number {text[:40]} is too long")
    return Fraction(text)


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a finite number")


def canonical_text(value: object) -> str:
    """Return the canonical text of a value, value by value: the reference for the fast path."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | Fraction):
        return format_decimal(Fraction(value))
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvariantBroken("a key must be text")
        pairs = sorted(value.items())
        inner = ",".join(
            f"{json.dumps(k, ensure_ascii=False)}:{canonical_text(v)}" for k, v in pairs
        )
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(canonical_text(item) for item in value)}]"
    raise InvariantBroken(f"{type(value).__name__} has no canonical form")
