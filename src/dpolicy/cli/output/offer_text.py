"""Text of counter-offers: the changed values, and the release that was submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dpolicy.releases.body import Body
from dpolicy.releases.denial_text import describe_changes
from dpolicy.releases.edits import changed_parameters


def offer_text(offer: Mapping[str, Any], body: Body | None = None) -> str:
    """Return a counter-offer as text; with the denied `body`, with the values before."""
    if body is not None and "mechanisms" in offer:
        return describe_changes(offer["mechanisms"], body)
    details = [offer[key] for key in ("factor", "attribute", "mechanism") if key in offer]
    return " ".join(map(str, [offer["change"], *details]))


def print_submitted_offer(original: Body, submitted: Body) -> None:
    """Print the release that was submitted instead of the original, and what differs."""
    click.echo(f"submitted  {submitted['release']}  instead of {original['release']}")
    if len(original["mechanisms"]) != len(submitted["mechanisms"]):
        return
    for name, values in changed_parameters(original, submitted).items():
        click.echo(f"  {describe_changes({name: values}, original)}")
