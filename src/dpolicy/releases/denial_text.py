"""Text of a denial for the user of a library: rules, numbers, and what the library can take.

A gate states a mechanism in the parameters of the library: ρ or ε for OpenDP, ε for diffprivlib, a
noise multiplier for Opacus. An offer changes these parameters, so its values can be passed to the
library as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision, Reason

#: Largest number of exceeded rules that a message describes.
MAX_RULES = 3

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "delta": "δ"}


def describe_denial(decision: Decision, body: Body) -> str:
    """Return why a release is denied and which change of its parameters would be allowed."""
    exceeded = [reason for reason in decision.reasons if not reason.holds]
    parts = [f"exceeded: {_describe_reason(reason)}" for reason in exceeded[:MAX_RULES]]
    if len(exceeded) > MAX_RULES:
        parts.append(f"and {len(exceeded) - MAX_RULES} more rules")
    parts += [f"no cumulative rule covers `{name}`" for name in decision.uncovered]
    parts += decision.predicate_errors
    offers = [offer for offer in decision.counter_offers if "mechanisms" in offer]
    if offers:
        parts.append(f"would be allowed with {_describe_offer(offers[0], body)}")
    return "; ".join(parts)


def _describe_reason(reason: Reason) -> str:
    """Return rule, unit, place, and the loss before and after the release."""
    place = "".join(f", {name} {value}" for name, value in reason.location.items())
    losses = ", ".join(_describe_losses(reason))
    cause = f" ({reason.cause})" if reason.cause else ""
    return f"{reason.rule} (unit {reason.unit}{place}) {losses}{cause}"


def _describe_losses(reason: Reason) -> Iterator[str]:
    budget = reason.budget if isinstance(reason.budget, Mapping) else {}
    limits = {f"renyi {order}": value for order, value in budget.get("renyi", {}).items()}
    for notion, after in reason.after.items():
        before = reason.spent.get(notion)
        change = f"{_amount_text(before)} → {_amount_text(after)}"
        limit = {**budget, **limits}.get(notion)
        of = "" if limit is None else f" of {format_down(limit)}"
        yield f"{_SYMBOLS.get(notion, notion)} {change}{of}"


def _amount_text(amount: float | None) -> str:
    return "∞" if amount is None else format_up(amount)


def _describe_offer(offer: Mapping[str, Any], body: Body) -> str:
    """Return the changed parameters; with the name of the mechanism if there are several."""
    mechanisms = body["mechanisms"]
    names = [fields.get("name", f"mechanism {n}") for n, fields in enumerate(mechanisms, 1)]
    stated = {name: fields["mechanism"] for name, fields in zip(names, mechanisms, strict=True)}
    changes = []
    for name, parameters in offer["mechanisms"].items():
        prefix = f"{name}: " if len(mechanisms) > 1 else ""
        before = stated.get(name, {})
        values = ", ".join(
            f"{key} {before[key]} → {value}" if key in before else f"{key} {value}"
            for key, value in parameters.items()
        )
        changes.append(prefix + values)
    return "; ".join(changes)
