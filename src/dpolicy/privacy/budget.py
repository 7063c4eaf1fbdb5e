"""Budgets: (ε, δ), ρ-zCDP, μ-GDP, Rényi at stated orders, or unlimited.

Numbers are exact fractions of the decimals in the policy text. `thresholds.py` turns a budget into
the bound that losses are compared with; no other module reads a budget to decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpolicy.privacy.certificates import format_order
from dpolicy.privacy.number_text import format_down


@dataclass(frozen=True, slots=True)
class EpsilonDelta:
    """(ε, δ)-DP; with δ = 0, pure DP."""

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Zcdp:
    """ρ-zCDP: the Rényi divergence of every order α is at most ρα."""

    rho: Fraction


@dataclass(frozen=True, slots=True)
class Gdp:
    """μ-Gaussian DP."""

    mu: Fraction


@dataclass(frozen=True, slots=True)
class Renyi:
    """Rényi DP at stated orders, sorted; the bound of every order must hold."""

    orders: tuple[tuple[Fraction, Fraction], ...]


@dataclass(frozen=True, slots=True)
class Unlimited:
    """No bound: the loss is tracked, and never denies a release."""


Budget = EpsilonDelta | Zcdp | Gdp | Renyi | Unlimited


def budget_amount(budget: Budget) -> tuple[str, Fraction] | None:
    """Return the notion and number that a budget function changes; None for Rényi and unlimited."""
    match budget:
        case EpsilonDelta(epsilon=epsilon):
            return "epsilon", epsilon
        case Zcdp(rho=rho):
            return "rho", rho
        case Gdp(mu=mu):
            return "mu", mu
        case Renyi() | Unlimited():
            return None


def budget_notion(budget: Budget) -> str | None:
    """Return the key of a budget's notion in the policy language; None for an unlimited budget."""
    match budget:
        case EpsilonDelta():
            return "epsilon"
        case Zcdp():
            return "rho"
        case Gdp():
            return "mu"
        case Renyi():
            return "renyi"
        case Unlimited():
            return None


def budget_limits(budget: Budget) -> dict[str, Fraction]:
    """Return the limit of each number of a displayed loss, without δ; none if unlimited."""
    match budget:
        case Renyi(orders=orders):
            return {f"renyi {format_order(order)}": value for order, value in orders}
        case Unlimited():
            return {}
        case _:
            amount = budget_amount(budget)
            return {} if amount is None else dict([amount])


def with_amount(budget: Budget, value: Fraction) -> Budget:
    """Return the budget with another ε, ρ or μ and the same δ; Rényi and unlimited stay."""
    match budget:
        case EpsilonDelta():
            return replace(budget, epsilon=value)
        case Zcdp():
            return Zcdp(value)
        case Gdp():
            return Gdp(value)
        case Renyi() | Unlimited():
            return budget


def budget_to_json(budget: Budget) -> dict[str, object] | str:
    """Return the budget as JSON: numbers under the keys of the policy language."""
    match budget:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return {"epsilon": float(epsilon), "delta": float(delta)}
        case Zcdp(rho=rho):
            return {"rho": float(rho)}
        case Gdp(mu=mu):
            return {"mu": float(mu)}
        case Renyi(orders=orders):
            return {"renyi": {format_order(order): float(value) for order, value in orders}}
        case Unlimited():
            return "unlimited"


def format_budget(budget: Budget) -> str:
    """Return the budget as short text for a table, rounded down."""
    match budget:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            return _epsilon_text(epsilon, delta)
        case Zcdp(rho=rho):
            return f"ρ {format_down(rho)}"
        case Gdp(mu=mu):
            return f"μ {format_down(mu)}"
        case Renyi(orders=orders):
            return "  ".join(f"rényi({format_order(o)}) {format_down(v)}" for o, v in orders)
        case Unlimited():
            return "unlimited"


def _epsilon_text(epsilon: Fraction, delta: Fraction) -> str:
    pure = f"ε {format_down(epsilon)}"
    return f"{pure}  δ {format_down(delta)}" if delta else pure
