"""Text of decisions: allowed or denied, the reasons, and counter-offers."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import click

from dpolicy.cli.output.offer_text import offer_text
from dpolicy.privacy.number_text import format_down, format_up_within
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision, DisplayedLoss, Reason
from dpolicy.releases.texts.stated_delta import delta_help, reason_delta_text

#: Symbol of each notion in which a budget is stated.
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}


def print_decision(
    decision: Decision, body: Body | None = None, command: str = "dpolicy submit FILE"
) -> None:
    """Print a decision with its reasons and counter-offers.

    `body` is the release and `command` submits it; the offers name its values and the command.
    """
    word, colour = ("allowed", "green") if decision.allowed else ("denied", "red")
    replayed = "  (recorded decision)" if decision.replayed else ""
    click.echo(f"{click.style(word, fg=colour)}  {decision.release}{replayed}")
    for name in decision.uncovered:
        click.echo(f"  no cumulative rule covers mechanism `{name}`")
    for error in decision.predicate_errors:
        click.echo(f"  {error}")
    for reason in decision.reasons:
        click.echo(f"  {reason_text(reason)}")
        delta_text = reason_delta_text(reason)
        if delta_text is not None:
            click.echo(f"    {delta_text}")
        if reason.cause:
            click.echo(f"    cause: {reason.cause}")
    help_ = delta_help(decision)
    if help_ is not None:
        click.echo(f"  help: {help_}")
    if decision.counter_offers:
        click.echo("  would be allowed with:")
    for number, offer in enumerate(decision.counter_offers, 1):
        submit = f"   (submit with: {command} --offer {number})" if "release" in offer else ""
        click.echo(f"  {number}  {offer_text(offer, body)}{submit}")


def reason_text(reason: Reason) -> str:
    """Format the spent loss before and after the release; losses do not add up in ε.

    A per-release rule has no spent loss, so its text has the cost of the release alone.
    """
    comparison = "exceeds" if reason.exceeds_loss else "of"
    spent, cost, after = (
        format_loss(loss, reason.budget) for loss in (reason.spent, reason.cost, reason.after)
    )
    budget = budget_text(reason.budget)
    method = ", by the rule's filter" if is_converted(reason.budget) else ""
    if reason.method:
        method = f", exact ({reason.method})"
    if reason.each_release:
        numbers = f"{after} {comparison} {budget} (this release alone{method})"
    else:
        numbers = f"{spent} → {after} {comparison} {budget} (alone {cost}{method})"
    location = location_text(reason.location)
    return f"{reason.rule}  unit {reason.unit}{location}  {numbers}  {reason.source}"


def is_converted(budget: Mapping[str, Any] | str) -> bool:
    """Return whether ε of a rule is converted from Rényi losses, so it depends on the filter."""
    return not isinstance(budget, str) and "epsilon" in budget and budget.get("delta", 0) > 0


def location_text(location: Mapping[str, str | int]) -> str:
    """Format a location; return nothing if a rule has the same loss everywhere."""
    if not location:
        return ""
    return "  at " + ", ".join(f"{name}={value}" for name, value in location.items())


def budget_text(budget: Mapping[str, Any] | str) -> str:
    """Format a budget as a recorded decision has it; the order of its keys is not significant."""
    if isinstance(budget, str):
        return budget
    if "renyi" in budget:
        orders = budget["renyi"].items()
        return ", ".join(f"rényi({order}) {format_down(value)}" for order, value in orders)
    notion = next(key for key in budget if key != "delta")
    return f"{_SYMBOLS[notion]} {format_down(budget[notion])}"


def format_loss(displayed_loss: DisplayedLoss, budget: Mapping[str, Any] | str) -> str:
    """Format the amounts of a loss without their notion, rounded up."""
    limits: Mapping[str, Any] = {}
    if not isinstance(budget, str):
        orders = budget.get("renyi", {}).items()
        limits = {**budget, **{f"renyi {order}": limit for order, limit in orders}}
    return ", ".join(
        "∞" if value is None else format_up_within(value, limits.get(notion, inf))
        for notion, value in displayed_loss.items()
        if notion != "delta"
    )
