"""Decisions → text for people: allowed or denied, why, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dpolicy.releases.decision import Decision, Reason


def print_decision(decision: Decision) -> None:
    """A decision with its reasons."""
    word = (
        click.style("allowed", fg="green") if decision.allowed else click.style("denied", fg="red")
    )
    again = "  (decided before)" if decision.replayed else ""
    click.echo(f"{word}  {decision.release}{again}")
    for name in decision.uncovered:
        click.echo(f"  `{name}` is covered by no rule over all releases")
    for error in decision.predicate_errors:
        click.echo(f"  {error}")
    for reason in decision.reasons:
        click.echo(f"  {_line(reason)}")
    for offer in decision.counter_offers:
        click.echo(f"  would fit: {_offer(offer)}")


def _line(reason: Reason) -> str:
    sign = "≤" if reason.holds else ">"
    limit = reason.budget if isinstance(reason.budget, str) else _amounts(reason.budget)
    sums = f"spent {_amounts(reason.spent)} + cost {_amounts(reason.cost)}"
    place = location_text(reason.location)
    return (
        f"{reason.rule}  unit {reason.unit}{place}  {sums} {sign} budget {limit}  {reason.source}"
    )


def location_text(at: Mapping[str, str | int]) -> str:
    """A place for people; nothing where everywhere is alike."""
    return "  at " + ", ".join(f"{name}={value}" for name, value in at.items()) if at else ""


def _amounts(displayed_loss: Mapping[str, Any]) -> str:
    values = [value for key, value in displayed_loss.items() if key != "delta"]
    return ", ".join("∞" if value is None else _number(value) for value in values)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _offer(offer: Mapping[str, Any]) -> str:
    what = next(value for key, value in offer.items() if key != "change")
    return f"{offer['change']} {what}"
