"""`dpolicy cost`: compute the cost of each mechanism of a release for each privacy unit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.privacy.certificates import MIN_ORDER, format_order
from dpolicy.privacy.cost_report import CostReport, report_costs, round_up_to_printed_float
from dpolicy.privacy.mechanisms.registry import find_relation_problems
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period
from dpolicy.releases.release import MechanismRequest
from dpolicy.releases.release_parser import load_release
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.did_you_mean import suggest

#: δ at which ε is computed if neither the command nor the policy states one.
DEFAULT_DELTA = Fraction("1e-7")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Path(), help="Policy set that defines the units.")
@click.option("--orders", help="Rényi orders to print, for example 2,8,64.")
@click.option("--delta", help="δ at which ε is computed; default: the policy's δ, else 1e-7.")
@format_option
def command(
    file: Path, policy: str | None, orders: str | None, delta: str | None, format_: str
) -> int:
    """Print the cost of each mechanism of the release FILE for each privacy unit.

    Without a policy, the units are `user` under add-remove and the units that the release states.
    """
    release = load_release(file)
    compiled = load_policy(policy) if policy else None
    printed_orders = _orders(orders, compiled)
    target_delta = _delta(delta, compiled)
    rows = [(m.name, _costs(m, compiled, printed_orders)) for m in release.mechanisms]
    if format_ == "json":
        print_json(
            {
                "delta": float(target_delta),
                "mechanisms": [
                    {
                        "name": name,
                        "units": {
                            unit: _cost_json(cost, printed_orders, target_delta)
                            for unit, cost in costs.items()
                        },
                    }
                    for name, costs in rows
                ],
            }
        )
    else:
        print_note(f"ε at δ = {float(target_delta):g}; every number is an upper bound")
        _print_text(rows, target_delta)
    return 0


def _orders(text: str | None, compiled: CompiledPolicy | None) -> tuple[Fraction, ...]:
    if text is None:
        return compiled.accounting.orders if compiled else DEFAULT_ORDERS
    orders = tuple(parse_decimal(part, "--orders") for part in text.split(",") if part.strip())
    for order in orders:
        if not MIN_ORDER <= order <= 10**6:
            raise click.UsageError(f"--orders must be from 1.01 to 1,000,000: {text}")
    return orders


def _delta(text: str | None, compiled: CompiledPolicy | None) -> Fraction:
    if text is None:
        stated = compiled.accounting.delta if compiled else None
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
    unit_relation = units[names.index(stated)].relation
    problems = tuple(find_relation_problems(request.kind, request.relation, unit_relation))
    if problems:
        raise ReleaseRejected(problems).for_release(request.name)
    relation = request.relation or unit_relation
    covers = compiled.vocabulary.covers if compiled else no_covers
    setting = GroupContext(units, request.additive, request.days_read, covers)
    place = names.index(stated)
    costs = report_costs(request.mechanism, place, request.restatements, relation, setting, orders)
    return dict(zip(names, costs, strict=True))


def _default_unit(names: list[str]) -> str:
    return "user" if "user" in names else names[0]


def _units(request: MechanismRequest, compiled: CompiledPolicy | None) -> tuple[PrivacyUnit, ...]:
    """Return the policy's units, or `user` and the periods of it that the mechanism names."""
    if compiled:
        return tuple(compiled.units.values())
    units = [PrivacyUnit("user", "user", None, NeighbouringRelation.ADD_REMOVE)]
    for name in (request.unit, *request.restatements):
        if name and name != "user" and name.startswith("user-"):
            period = parse_period(name.removeprefix("user-"))
            units.append(PrivacyUnit(name, "user", period, NeighbouringRelation.ADD_REMOVE))
    return tuple(units)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else round_up_to_printed_float(value)


def _cost_json(
    costs: CostReport, orders: tuple[Fraction, ...], delta: Fraction
) -> dict[str, object]:
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
    width = max((len(unit) for _, costs in rows for unit in costs), default=0)
    for name, costs in rows:
        click.echo(name)
        for unit, cost in costs.items():
            parts = {
                "ε": cost.epsilon(delta),
                "pure": _float(cost.pure),
                "ρ": _float(cost.rho),
                "μ": cost.mu,
            }
            text = "  ".join(f"{key} {_number_text(value):<10}" for key, value in parts.items())
            delta_side = f"  δ {float(cost.delta):g}" if cost.delta else ""
            click.echo(f"  {unit:<{width}}  {text}{delta_side}".rstrip())


def _number_text(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
