"""Budget functions, applied exactly, with diagnostics for functions that are not valid.

A function changes ε, ρ or μ and keeps δ. An unlimited budget stays unlimited. A function must be
monotone on the budgets to which it is applied; otherwise a stricter policy could give a
looser rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise

from dpolicy.errors import InvalidValue, PredicateFailed
from dpolicy.policy.budget_grammar import MAX_BUDGET_NUMBER
from dpolicy.policy.model import BudgetFunction, Cel, Plus, Same, Through, Times
from dpolicy.privacy.budget import (
    Budget,
    EpsilonDelta,
    Renyi,
    Unlimited,
    budget_amount,
    format_budget,
    with_amount,
)
from dpolicy.privacy.number_text import format_down
from dpolicy.text.diagnostics import DiagnosticCollector

CelFunctions = Mapping[str, Callable[[str, float], float]]


def apply_budget_function(function: BudgetFunction, budget: Budget, cel: CelFunctions) -> Budget:
    """Return the budget of a setting or level. Raise `InvalidValue` if it is not a budget."""
    if isinstance(function, Same) or isinstance(budget, Unlimited):
        return budget
    amount = budget_amount(budget)
    if amount is None:
        raise InvalidValue("P043", f"only `same` can be applied to {format_budget(budget)}")
    notion, value = amount
    result = _value(function, notion, value, cel)
    if not 0 <= result <= MAX_BUDGET_NUMBER:
        raise InvalidValue(
            "P043",
            f"{format_budget(budget)} becomes {format_down(result)}, which is not a valid budget",
        )
    return with_amount(budget, result)


def _value(function: BudgetFunction, notion: str, value: Fraction, cel: CelFunctions) -> Fraction:
    match function:
        case Times(factor=factor):
            return value * factor
        case Plus(amount=amount):
            return value + amount
        case Through():
            return _interpolate(function, value)
        case Cel(text=text):
            try:
                return Fraction(cel[str(text)](notion, float(value)))
            except PredicateFailed as error:
                raise InvalidValue("P043", str(error)) from error
        case Same():
            return value


def _interpolate(function: Through, value: Fraction) -> Fraction:
    points = function.points
    (first, _), (last, _) = points[0], points[-1]
    if not first <= value <= last and not function.extend:
        span = f"{format_down(first)} to {format_down(last)}"
        raise InvalidValue("P042", f"the budget {format_down(value)} is outside the points, {span}")
    if len(points) == 1:
        return points[0][1]
    segments = list(pairwise(points))
    (x0, y0), (x1, y1) = next((s for s in segments if value <= s[1][0]), segments[-1])
    return y0 + (value - x0) * (y1 - y0) / (x1 - x0)


def apply_to_all(
    function: BudgetFunction,
    budgets: Iterable[Budget],
    what: str,
    cel: CelFunctions,
    diagnostics: DiagnosticCollector,
) -> list[Budget]:
    """Apply a function to every budget; report it if it fails or is not monotone.

    Where the function fails, the result is the budget itself, so that later stages can continue.
    """
    results, mapped = [], []
    for budget in budgets:
        try:
            result = apply_budget_function(function, budget, cel)
            mapped.append((budget, result))
        except InvalidValue as error:
            _report(function, error.code, f"{what}: {error.message}", diagnostics)
            result = budget
        results.append(result)
    if not isinstance(function, Same):
        _check_monotone(function, mapped, what, diagnostics)
    return results


def _check_monotone(
    function: BudgetFunction,
    mapped: list[tuple[Budget, Budget]],
    what: str,
    diagnostics: DiagnosticCollector,
) -> None:
    groups: dict[object, list[tuple[Fraction, Fraction]]] = {}
    for budget, result in mapped:
        before, after = budget_amount(budget), budget_amount(result)
        if before is not None and after is not None and not isinstance(budget, Renyi):
            delta = budget.delta if isinstance(budget, EpsilonDelta) else None
            groups.setdefault((before[0], delta), []).append((before[1], after[1]))
    for pairs in groups.values():
        pairs.sort()
        for (x0, y0), (x1, y1) in pairwise(pairs):
            if y1 < y0:
                message = (
                    f"{what} is not monotone: {format_down(x0)} becomes {format_down(y0)} "
                    f"but {format_down(x1)} becomes {format_down(y1)}"
                )
                _report(function, "P041", message, diagnostics)
        lowered = [(x, y) for x, y in pairs if y < x]
        if lowered:
            x, y = lowered[0]
            message = f"{what} lowers a budget: {format_down(x)} becomes {format_down(y)}"
            _report(function, "P105", message, diagnostics)


_HELP = {
    "P041": "change the function so that a larger budget never becomes the smaller one",
    "P042": "add a point beyond this budget, or set `beyond: extend`",
    "P105": "keep the function if this is intended",
}


def _report(
    function: BudgetFunction, code: str, message: str, diagnostics: DiagnosticCollector
) -> None:
    if not isinstance(function, Same):
        diagnostics.report(code, message, function.span, _HELP.get(code))
