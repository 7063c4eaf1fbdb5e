"""Text of numbers for people: losses and costs rounded up, budgets rounded down.

Every text that shows a loss, a cost or a budget uses these functions, so the same number has the
same text everywhere, and no text claims less loss or more budget than there is.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

#: Significant digits of a displayed loss.
DIGITS = 6

#: Significant digits of a displayed budget: every budget that a person writes has fewer.
BUDGET_DIGITS = 12


def format_up(value: Fraction | float, digits: int = DIGITS) -> str:
    """Return a loss, cost or share as text that is not below it: log 3 becomes 1.09862."""
    return _format(value, digits, ROUND_CEILING)


def format_down(value: Fraction | float, digits: int = BUDGET_DIGITS) -> str:
    """Return a budget or a remainder as text that is not above it: 1.0000049 stays 1.0000049."""
    return _format(value, digits, ROUND_FLOOR)


def _format(value: Fraction | float, digits: int, rounding: str) -> str:
    """Return the decimal of a number, rounded once; a float counts as its printed decimal."""
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    context = Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{float(rounded):.{digits}g}"
