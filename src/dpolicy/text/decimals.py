"""Exact fractions as decimal text."""

from __future__ import annotations

from fractions import Fraction

from dpolicy.errors import InvariantBroken

#: A fraction with more decimal places than this counts as one without a finite decimal.
MAX_DECIMAL_PLACES = 1000


def format_decimal(value: Fraction) -> str:
    """Format a fraction as a plain decimal, or with an exponent where that is shorter.

    The text is exact and unique: `Fraction(text) == value`, and equal values give equal texts.
    Raise `InvariantBroken` for a fraction without a finite decimal, such as 1/3.
    """
    numerator, denominator = value.numerator, value.denominator
    if denominator == 1 and abs(numerator) < 10**21:
        return str(numerator)
    places = 0
    while 10**places % denominator:
        places += 1
        if places > MAX_DECIMAL_PLACES:
            raise InvariantBroken(f"{value} has no finite decimal")
    digits = str(abs(numerator) * (10**places // denominator))
    trimmed = digits.rstrip("0") or "0"
    exponent = len(digits) - len(trimmed) - places
    sign = "-" if numerator < 0 else ""
    if -12 <= exponent < 0:
        padded = trimmed.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{trimmed}e{exponent}"
