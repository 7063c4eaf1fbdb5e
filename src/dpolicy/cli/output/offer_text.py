"""Text of counter-offers: the changed values, and the command that submits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dpolicy.releases.body import Body
from dpolicy.releases.edits import changed_parameters, mechanism_names


def offer_text(offer: Mapping[str, Any], body: Body | None = None) -> str:
    """Return a counter-offer as text; with the denied `body`, with the values before."""
    if "mechanisms" in offer:
        before = _parameters(body)
        changes = (
            f"{name}: " + ", ".join(_change_text(before.get(name, {}), key, new) for key, new in p)
            for name, p in ((name, p.items()) for name, p in offer["mechanisms"].items())
        )
        return "; ".join(changes)
    details = [offer[key] for key in ("factor", "attribute", "mechanism") if key in offer]
    return " ".join(map(str, [offer["change"], *details]))


def print_submitted_offer(original: Body, submitted: Body) -> None:
    """Print the release that was submitted instead of the original, and what differs."""
    click.echo(f"submitted  {submitted['release']}  instead of {original['release']}")
    if len(original["mechanisms"]) == len(submitted["mechanisms"]):
        changes = changed_parameters(original, submitted)
        names = [name for name in mechanism_names(original) if name in changes]
        for name in names:
            text = offer_text({"mechanisms": {name: _numbers(changes[name])}}, original)
            click.echo(f"  {text}")


def _numbers(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {key: _number_text(value) for key, value in parameters.items()}


def _parameters(body: Body | None) -> dict[str, Mapping[str, Any]]:
    if body is None:
        return {}
    values = (fields["mechanism"] for fields in body["mechanisms"])
    return dict(zip(mechanism_names(body), values, strict=True))


def _change_text(before: Mapping[str, Any], key: str, new: Any) -> str:
    old = before.get(key)
    return f"{key} {new}" if old is None else f"{key} {_number_text(old)} → {new}"


def _number_text(value: Any) -> str:
    return str(value) if getattr(value, "denominator", 1) == 1 else repr(float(value))
