"""Text of numbers for people: losses and costs rounded up, budgets rounded down.

Every text that shows a loss, a cost or a budget uses these functions, so the same number has the
same text everywhere, and no text claims less loss or more budget than there is.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import ceil

#: Significant digits of a displayed loss.
DIGITS = 6

#: Significant digits of a displayed budget: every budget that a person writes has fewer.
BUDGET_DIGITS = 12

#: Largest number of decimals of a displayed percentage.
SHARE_DECIMALS = 3

#: Significant digits with which every float has its own text.
ALL_DIGITS = 17


def format_up(value: Fraction | float, digits: int = DIGITS) -> str:
    """Return a loss, cost or share as text that is not below it: log 3 becomes 1.09862."""
    return _format(value, digits, ROUND_CEILING)


def format_down(value: Fraction | float, digits: int = BUDGET_DIGITS) -> str:
    """Return a budget or a remainder as text that is not above it: 1.0000049 stays 1.0000049."""
    return _format(value, digits, ROUND_FLOOR)


def format_up_within(value: Fraction | float, limit: Fraction | float) -> str:
    """Return a loss as `format_up` does, with more digits if the text would pass its limit.

    A loss within its budget has a text within the budget, so a satisfied rule never looks exceeded.
    """
    if value > limit:
        return format_up(value)
    texts = [format_up(value, digits) for digits in (DIGITS, BUDGET_DIGITS, ALL_DIGITS)]
    return next((text for text in texts if text != "∞" and Fraction(text) <= limit), texts[-1])


def format_share(share: Fraction | float | None) -> str:
    """Return a used share in per cent, rounded up; 100 % is the text of a full budget only.

    There is one decimal from 90 to 110 per cent, and up to `SHARE_DECIMALS` just below 100.
    """
    if share is None:
        return "–"
    if share == float("inf"):
        return "∞"
    percent = 100 * (_without_float_error(share) if isinstance(share, float) else share)
    if not 90 <= percent < 110:
        return f"{ceil(percent)} %"
    for decimals in range(1, SHARE_DECIMALS + 1):
        rounded = Fraction(ceil(percent * 10**decimals), 10**decimals)
        if rounded < 100 or percent >= 100:
            return f"{float(rounded):.{decimals}f} %".replace("100.0 %", "100 %")
    return "< 100 %"


def _without_float_error(share: float) -> Fraction:
    """Return a quotient of floats without its last digits, so that 0.5000000000000001 is 0.5."""
    rounded = Fraction(f"{share:.14g}")
    return rounded if (rounded < 1) == (share < 1) else Fraction(repr(float(share)))


def _format(value: Fraction | float, digits: int, rounding: str) -> str:
    """Return the decimal of a number, rounded once; a float counts as its printed decimal."""
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    exact = Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)
    context = Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return _decimal_text(rounded.normalize(), digits)


def _decimal_text(number: Decimal, digits: int) -> str:
    """Return the text that the format `g` has, without the detour over a float."""
    exponent = number.adjusted()
    if not number or -5 < exponent < digits:
        return f"{number:f}"
    return f"{number.scaleb(-exponent):f}e{exponent:+03d}"
