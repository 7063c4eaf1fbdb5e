"""Text of a denial for the user of a library: rules, numbers, and what the library can take.

A gate states a mechanism in the parameters of the library: ρ or ε for OpenDP, ε for diffprivlib, a
noise multiplier for Opacus. An offer changes these parameters, so its values can be passed to the
library as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpolicy.privacy.number_text import format_down
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.edits import mechanism_names
from dpolicy.releases.texts.amount_text import budget_amounts, loss_amounts
from dpolicy.releases.texts.stated_delta import reason_delta_text

#: Largest number of exceeded rules that a message describes.
MAX_RULES = 3

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}


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
        parts.append(f"would be allowed with {describe_changes(offers[0]['mechanisms'], body)}")
    return "; ".join(parts)


def _describe_reason(reason: Reason) -> str:
    """Return rule, unit, place, and the loss before and after the release."""
    place = "".join(f", {name} {value}" for name, value in reason.location.items())
    delta = reason_delta_text(reason)
    losses = ", ".join([*_describe_losses(reason), *([] if delta is None else [delta])])
    cause = f" ({reason.cause})" if reason.cause else ""
    return f"{reason.rule} (unit {reason.unit}{place}) {losses}{cause}"


def _describe_losses(reason: Reason) -> Iterator[str]:
    budget = reason.budget if isinstance(reason.budget, Mapping) else {}
    limits = dict(budget_amounts(budget))
    spent = loss_amounts(reason.spent, budget)
    for notion, after in loss_amounts(reason.after, budget).items():
        of = f" of {format_down(limits[notion])}" if notion in limits else ""
        yield f"{_SYMBOLS.get(notion, notion)} {spent.get(notion, '∞')} → {after}{of}"


def describe_changes(changes: Mapping[str, Mapping[str, Any]], body: Body) -> str:
    """Return changed parameters, with the values of `body` before; one mechanism needs no name.

    A parameter of a restatement has the name `also.UNIT.PARAMETER`.
    """
    stated = {
        name: flatten_parameters({**fields["mechanism"], "also": fields.get("also", {})})
        for name, fields in zip(mechanism_names(body), body["mechanisms"], strict=True)
    }
    is_single = len(stated) == 1 and "name" not in body["mechanisms"][0]
    return "; ".join(
        ("" if is_single else f"{name}: ")
        + ", ".join(
            _describe_change(stated.get(name, {}), key, new)
            for key, new in flatten_parameters(values).items()
        )
        for name, values in changes.items()
    )


def flatten_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a mechanism and of its restatements in one mapping."""
    restated = {
        f"also.{unit}.{key}": value
        for unit, fields in parameters.get("also", {}).items()
        for key, value in fields.items()
    }
    return {**{key: value for key, value in parameters.items() if key != "also"}, **restated}


def _describe_change(before: Mapping[str, Any], key: str, new: Any) -> str:
    if key not in before:
        return f"{key} {_number_text(new)}"
    return f"{key} {_number_text(before[key])} → {_number_text(new)}"


def _number_text(value: Any) -> str:
    """Return a parameter as its author would write it."""
    return str(int(value)) if value == int(value) else str(float(value))
