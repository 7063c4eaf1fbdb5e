"""Text of losses, budgets and locations, in the form that decisions and statuses have as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from dpolicy.privacy.number_text import format_down, format_up_within

_SYMBOLS = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "mu": "μ"}


def loss_text(loss: Mapping[str, float | None], budget: Mapping[str, Any] | str) -> str:
    """Return a loss without stated δ, rounded up: `ε 1.5`; an unknown loss is infinite."""
    return ", ".join(
        f"{_symbol(notion)} {amount}" for notion, amount in loss_amounts(loss, budget).items()
    )


def loss_amounts(
    loss: Mapping[str, float | None], budget: Mapping[str, Any] | str
) -> dict[str, str]:
    """Return the text of each number of a loss without stated δ, which has a limit of its own.

    A number within the budget has a text within it.
    """
    limits = dict(budget_amounts(budget))
    return {
        notion: "∞" if value is None else format_up_within(value, limits.get(notion, inf))
        for notion, value in loss.items()
        if notion != "delta"
    }


def budget_text(budget: Mapping[str, Any] | str) -> str:
    """Return a budget, rounded down: `ε 2, δ 1e-07`."""
    if isinstance(budget, str):
        return budget
    return ", ".join(f"{_symbol(n)} {format_down(value)}" for n, value in budget_amounts(budget))


def budget_amounts(budget: Mapping[str, Any] | str) -> Iterator[tuple[str, float]]:
    """Yield the notions and amounts of a budget, with the notions of losses."""
    for notion, value in {} if isinstance(budget, str) else budget.items():
        if isinstance(value, Mapping):
            yield from ((f"{notion} {order}", amount) for order, amount in value.items())
        else:
            yield notion, value


def location_text(location: Mapping[str, str | int]) -> str:
    """Return a location: `country=CH, time=2026-10`; empty if the loss is the same everywhere."""
    return ", ".join(f"{name}={value}" for name, value in location.items())


def _symbol(notion: str) -> str:
    return _SYMBOLS.get(notion, notion.replace("renyi", "rényi"))
