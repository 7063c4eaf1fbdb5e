"""Text of the stated δ of a rule: the sum before and after, and the part of δ kept for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dpolicy.privacy.number_text import format_down, format_up

if TYPE_CHECKING:
    from dpolicy.releases.decision import Decision, Reason

#: Significant digits of a δ and of its limit.
DIGITS = 6

#: Significant digits where fewer would hide on which side of its limit a δ is.
FULL_DIGITS = 15

#: Symbol of each notion in which a budget is stated.
NOTION_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "renyi": "Rényi orders", "delta": "δ"}


class DeltaNumbers(NamedTuple):
    """Texts of the stated δ of a reason; `limit` is empty if it has none or the record lacks it."""

    spent: str
    cost: str
    after: str
    limit: str


def delta_numbers(reason: Reason) -> DeltaNumbers | None:
    """Return the stated δ of a reason as texts; None if no δ is stated before or by it."""
    (*_, delta), limit = reason.stated_deltas, reason.delta_limit
    if not delta:
        return None
    digits = DIGITS if limit is None else _digits(delta, limit)
    spent, cost, after = (format_up(stated, digits) for stated in reason.stated_deltas)
    return DeltaNumbers(spent, cost, after, "" if limit is None else format_down(limit, digits))


def reason_delta_text(reason: Reason) -> str | None:
    """Return the change of the stated δ of a reason; None if no δ is stated before or by it."""
    numbers, limit = delta_numbers(reason), reason.delta_limit
    if numbers is None:
        return None
    change = f"stated δ {numbers.spent} → {numbers.after}"
    if reason.leaks is None:  # a record before version 0.3
        exceeded = reason.exceeds_delta
        return f"{change} exceeds the part of δ kept for stated leaks" if exceeded else change
    if not limit:
        return _no_limit_text(reason.stated_deltas[-1], limit, reason.budget)
    relation = "exceeds" if reason.exceeds_delta else "of"
    return f"{change} {relation} {_kept_text(numbers.limit, reason.budget)}"


def spent_delta_text(
    spent: float, limit: float | None, budget: Mapping[str, Any] | str, relation: str = "of"
) -> str | None:
    """Return the sum of stated δ that was spent on a rule; None if there is none.

    `relation` is the word between the sum and its limit.
    """
    if not spent:
        return None
    if not limit:
        return _no_limit_text(spent, limit, budget)
    digits = _digits(spent, limit)
    kept = _kept_text(format_down(limit, digits), budget)
    return f"stated δ {format_up(spent, digits)} {relation} {kept}"


def delta_help(decision: Decision) -> str | None:
    """Return how to avoid a denial for stated δ; None if no rule is exceeded in δ."""
    exceeded = [reason for reason in decision.reasons if reason.exceeds_delta]
    if not exceeded:
        return None
    is_spent = not any(reason.stated_deltas[1] for reason in exceeded)
    if all(reason.delta_limit == 0 for reason in exceeded):
        if is_spent:
            return "use a budget in ε with a δ; recorded releases state δ, and this one allows none"
        return "use a mechanism kind without δ, or a budget in ε with a δ"
    if is_spent:
        return (
            "raise `accounting: {leaks}`; recorded releases already exceed the part of δ kept for "
            "stated leaks, and this release states none"
        )
    return "state a smaller δ, use a mechanism kind without δ, or raise `accounting: {leaks}`"


def _no_limit_text(delta: float, limit: float | None, budget: Mapping[str, Any] | str) -> str:
    """Return the text for a budget that allows no stated δ, or every one."""
    if limit is None or isinstance(budget, str):
        return f"stated δ {format_up(delta)}, without a limit"
    if budget.get("delta"):
        return f"δ {format_up(delta)} is stated, and the policy keeps no part of δ for stated leaks"
    notion = NOTION_SYMBOLS[next(key for key in budget if key != "delta")]
    pure = " with δ 0" if "epsilon" in budget else ""
    return f"δ {format_up(delta)} is stated, and a budget in {notion}{pure} allows none"


def _kept_text(limit: str, budget: Mapping[str, Any] | str) -> str:
    """Return the limit of stated δ, as a part of the budget's δ."""
    total = format_down(budget["delta"]) if isinstance(budget, Mapping) else limit
    return f"{limit}, the part of δ {total} kept for stated leaks"


def _digits(delta: float, limit: float) -> int:
    """Return enough digits that the text shows on which side of its limit a δ is."""
    seems_above = float(format_up(delta, DIGITS)) > float(format_down(limit, DIGITS))
    return DIGITS if seems_above == (delta > limit) else FULL_DIGITS
