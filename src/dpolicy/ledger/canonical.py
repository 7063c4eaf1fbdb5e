"""Plain values → canonical bytes and back: one text for one value, numbers exact.

JSON with sorted keys, no spaces, UTF-8. A fraction is written as the decimal it is, so what people
wrote is kept to the last digit; a fraction with no finite decimal is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.errors import InvariantBroken

#: Numbers of policies and releases are far shorter.
MAX_DECIMAL_DIGITS = 2_000

#: Stands for a number inside the text that the JSON library writes; see `encode`.
_MARK = "\x00"
_MARKED = re.compile(r'"\\u0000([^"]*)"')


def encode_canonical(value: object) -> bytes:
    """The only bytes of a value.

    The JSON library writes all but exact numbers. Those are marked, and freed of their quotes
    afterwards; a text that happens to look like a mark is told by the count, and spelt out slowly.
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
        return _MARKED.sub(r"\1", text).encode("utf-8")
    return canonical_text(value).encode("utf-8")


def _encoder(plain: Callable[[object], object]) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=plain, allow_nan=False
    )


def decode_canonical(data: bytes) -> Any:
    """The value of canonical bytes; numbers come back as exact fractions."""
    return json.loads(
        data.decode("utf-8"), parse_float=_number, parse_int=_number, parse_constant=_refused
    )


def _number(text: str) -> Fraction:
    """An exact number; one that would take an age to write out was not written by us."""
    _, _, exponent = text.lower().partition("e")
    if len(text) > MAX_DECIMAL_DIGITS or (exponent and abs(int(exponent)) > MAX_DECIMAL_DIGITS):
        raise ValueError(f"{text[:40]} is absurd")
    return Fraction(text)


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def canonical_text(value: object) -> str:
    """The canonical text, value by value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | Fraction):
        return format_decimal(Fraction(value))
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvariantBroken("only text can be a key")
        pairs = sorted(value.items())
        inner = ",".join(
            f"{json.dumps(k, ensure_ascii=False)}:{canonical_text(v)}" for k, v in pairs
        )
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(canonical_text(item) for item in value)}]"
    raise InvariantBroken(f"{type(value).__name__} has no canonical form")


def format_decimal(value: Fraction) -> str:
    """A fraction as a plain decimal, or with an exponent where that is shorter."""
    numerator, denominator = value.numerator, value.denominator
    if denominator == 1 and abs(numerator) < 10**21:
        return str(numerator)
    places = 0
    while 10**places % denominator:
        places += 1
        if places > 1000:
            raise InvariantBroken(f"{value} has no finite decimal")
    digits = str(abs(numerator) * (10**places // denominator))
    trimmed = digits.rstrip("0") or "0"
    exponent = len(digits) - len(trimmed) - places
    sign = "-" if numerator < 0 else ""
    if -12 <= exponent < 0:
        padded = trimmed.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{trimmed}e{exponent}"
