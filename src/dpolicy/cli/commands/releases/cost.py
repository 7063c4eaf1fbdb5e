"""`dpolicy cost`: what each mechanism of a release costs in each unit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import InvalidValue
from dpolicy.privacy.certificates import MIN_ORDER, format_order
from dpolicy.privacy.cost_report import CostReport, report_costs, round_up_to_printed_float
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period
from dpolicy.releases.release import MechanismRequest
from dpolicy.releases.release_format import load_release
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.did_you_mean import suggest

#: The δ that ε is read off at where neither the command nor the policy says one.
DEFAULT_DELTA = Fraction("1e-7")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Path(), help="The policy set whose units are meant.")
@click.option("--orders", help="Rényi orders to show, for example 2,8,64.")
@click.option("--delta", help="The δ at which ε is read off; the policy's, else 1e-7.")
@format_option
def command(
    file: Path, policy: str | None, orders: str | None, delta: str | None, format_: str
) -> int:
    """Print what each mechanism of the release FILE costs in each privacy unit.

    Without a policy the unit is `user` under add-remove, beside the unit that a mechanism states.
    """
    release = load_release(file)
    compiled = load_policy(policy) if policy else None
    shown = _orders(orders, compiled)
    at = _delta(delta, compiled)
    rows = [(m.name, _costs(m, compiled, shown)) for m in release.mechanisms]
    if format_ == "json":
        print_json(
            {
                "delta": float(at),
                "mechanisms": [
                    {"name": name, "units": {u: _json(c, shown, at) for u, c in costs.items()}}
                    for name, costs in rows
                ],
            }
        )
    else:
        print_note(f"ε at δ = {float(at):g}; every number is an upper bound")
        _print_text(rows, at)
    return 0


def _orders(text: str | None, compiled: CompiledPolicy | None) -> tuple[Fraction, ...]:
    if text is None:
        return compiled.policy_set.accounting.orders if compiled else DEFAULT_ORDERS
    orders = tuple(parse_decimal(part, "--orders") for part in text.split(",") if part.strip())
    for order in orders:
        if not MIN_ORDER <= order <= 10**6:
            raise click.UsageError(f"an order must be from 1.01 to 1,000,000, not {float(order):g}")
    return orders


def _delta(text: str | None, compiled: CompiledPolicy | None) -> Fraction:
    if text is None:
        stated = compiled.policy_set.accounting.delta if compiled else None
        return DEFAULT_DELTA if stated is None else stated
    delta = parse_decimal(text, "--delta")
    if not 0 <= delta < 1:
        raise click.UsageError(f"δ must be at least 0 and below 1, not {text}")
    return delta


def _costs(
    request: MechanismRequest, compiled: CompiledPolicy | None, orders: tuple[Fraction, ...]
) -> dict[str, CostReport]:
    units = _units(request, compiled)
    names = [unit.name for unit in units]
    stated = request.unit or _default_unit(names)
    for name in (stated, *request.restatements):
        if name not in names:
            hint = suggest(name, names) or ""
            raise InvalidValue("P020", f"`{request.name}` names the unit `{name}`; {hint}")
    relation = request.relation or units[names.index(stated)].relation
    covers = compiled.checked_policy_set.vocabulary.covers if compiled else no_covers
    setting = GroupContext(units, request.additive, request.days_read, covers)
    place = names.index(stated)
    costs = report_costs(request.mechanism, place, request.restatements, relation, setting, orders)
    return dict(zip(names, costs, strict=True))


def _default_unit(names: list[str]) -> str:
    return "user" if "user" in names else names[0]


def _units(request: MechanismRequest, compiled: CompiledPolicy | None) -> tuple[PrivacyUnit, ...]:
    """The policy's units, or `user` and whatever slices of it the mechanism names."""
    if compiled:
        return tuple(compiled.checked_policy_set.vocabulary.units.values())
    units = [PrivacyUnit("user", "user", None, NeighbouringRelation.ADD_REMOVE)]
    for name in (request.unit, *request.restatements):
        if name and name != "user" and name.startswith("user-"):
            period = parse_period(name.removeprefix("user-"))
            units.append(PrivacyUnit(name, "user", period, NeighbouringRelation.ADD_REMOVE))
    return tuple(units)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else round_up_to_printed_float(value)


def _json(costs: CostReport, orders: tuple[Fraction, ...], delta: Fraction) -> dict[str, object]:
    curve = dict(costs.renyi)
    return {
        "pure": _float(costs.pure),
        "rho": _float(costs.rho),
        "mu": costs.mu,
        "renyi": {format_order(order): _float(curve[order]) for order in orders},
        "epsilon": costs.epsilon(delta),
        "delta": float(costs.delta),
    }


def _print_text(rows: list[tuple[str, dict[str, CostReport]]], delta: Fraction) -> None:
    wide = max((len(unit) for _, costs in rows for unit in costs), default=0)
    for name, costs in rows:
        click.echo(name)
        for unit, found in costs.items():
            parts = {
                "ε": found.epsilon(delta),
                "pure": _float(found.pure),
                "ρ": _float(found.rho),
                "μ": found.mu,
            }
            said = "  ".join(f"{key} {_shown(value):<10}" for key, value in parts.items())
            leak = f"  δ {float(found.delta):g}" if found.delta else ""
            click.echo(f"  {unit:<{wide}}  {said}{leak}".rstrip())


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
