"""Text of decisions: allowed or denied, the reasons, and counter-offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.stated_delta import delta_help, reason_delta_text

#: Symbol of each notion in which a budget is stated.
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}


def print_decision(decision: Decision) -> None:
    """Print a decision with its reasons and counter-offers."""
    word, colour = ("allowed", "green") if decision.allowed else ("denied", "red")
    replayed = "  (recorded decision)" if decision.replayed else ""
    click.echo(f"{click.style(word, fg=colour)}  {decision.release}{replayed}")
    for name in decision.uncovered:
        click.echo(f"  no cumulative rule covers mechanism `{name}`")
    for error in decision.predicate_errors:
        click.echo(f"  {error}")
    for reason in decision.reasons:
        click.echo(f"  {_reason_text(reason)}")
        delta_text = reason_delta_text(reason)
        if delta_text is not None:
            click.echo(f"    {delta_text}")
    help_ = delta_help(decision)
    if help_ is not None:
        click.echo(f"  help: {help_}")
    for offer in decision.counter_offers:
        click.echo(f"  would be allowed with: {_offer_text(offer)}")


def _reason_text(reason: Reason) -> str:
    """Format the spent loss before and after the release; losses do not add up in ε."""
    comparison = "exceeds" if reason.exceeds_loss else "of"
    digits = 6 if _amount_text(reason.after, 6) != _limit_text(reason.budget, 6) else 15
    change = f"{_amount_text(reason.spent, digits)} → {_amount_text(reason.after, digits)}"
    alone = f"(alone {_amount_text(reason.cost, digits)})"
    location = location_text(reason.location)
    numbers = f"{change} {comparison} {_budget_text(reason.budget)} {alone}"
    return f"{reason.rule}  unit {reason.unit}{location}  {numbers}  {reason.source}"


def location_text(location: Mapping[str, str | int]) -> str:
    """Format a location; return nothing if a rule has the same loss everywhere."""
    if not location:
        return ""
    return "  at " + ", ".join(f"{name}={value}" for name, value in location.items())


def _budget_text(budget: Mapping[str, Any] | str) -> str:
    """Format a budget as a recorded decision has it; the order of its keys is not significant."""
    if isinstance(budget, str):
        return budget
    if "renyi" in budget:
        return ", ".join(f"rényi({order}) {value:g}" for order, value in budget["renyi"].items())
    notion = next(key for key in budget if key != "delta")
    return f"{_SYMBOLS[notion]} {_amount_text(budget, 15)}"


def _limit_text(budget: Mapping[str, Any] | str, digits: int) -> str:
    """Format the amounts of a budget without their notion, to compare them with a loss."""
    if isinstance(budget, str):
        return budget
    return _amount_text(budget.get("renyi", budget), digits)


def _amount_text(displayed_loss: Mapping[str, Any], digits: int) -> str:
    values = [value for key, value in displayed_loss.items() if key != "delta"]
    return ", ".join("∞" if value is None else f"{value:.{digits}g}" for value in values)


def _offer_text(offer: Mapping[str, Any]) -> str:
    detail = next(value for key, value in offer.items() if key != "change")
    return f"{offer['change']} {detail}"
