"""`dpolicy cost`: compute the cost of each mechanism of a release for each privacy unit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from dpolicy.cli.ledger_option import read_state
from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.decisions.filter_costs import FilterCost
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.pdp.dry_runs.cost_preview import CostPreview, preview_costs
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS
from dpolicy.privacy.budget import EpsilonDelta, budget_to_json
from dpolicy.privacy.certificates import MIN_ORDER, format_order
from dpolicy.privacy.cost_report import (
    DEFAULT_DELTA,
    CostReport,
    report_costs,
    round_up_to_printed_float,
)
from dpolicy.privacy.loss_distribution.unit_runs import LossRuns, certify_runs, runs_by_unit
from dpolicy.privacy.mechanisms.registry import find_relation_problems
from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.privacy.risk.attacker_risk import attacker_risk
from dpolicy.privacy.risk.risk_text import assumption_lines, risk_summary
from dpolicy.privacy.thresholds import DEFAULT_ORDERS
from dpolicy.privacy.units.group_privacy import GroupContext, no_covers
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period
from dpolicy.releases.decision import LOSS_DISTRIBUTION
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.releases.release_parser import load_release
from dpolicy.releases.texts.amount_text import loss_amounts
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.did_you_mean import suggest

#: Label of an ε that a loss distribution certifies.
EXACT = f"exact ({LOSS_DISTRIBUTION})"

#: Relative difference below which two ε are the same: a certified ε is rounded up to six digits.
_SAME = 1e-5

#: Symbol of each notion in which a filter counts.
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", type=click.Path(), help="Policy set that defines units and rules.")
@click.option("--ledger", help="Ledger whose active policy defines units and rules.")
@click.option("--orders", help="Rényi orders to print, for example 2,8,64.")
@click.option("--delta", help="δ at which ε is computed; default: the policy's δ, else 1e-7.")
@click.option("--risk", is_flag=True, help="Also print the success of the best attacker.")
@format_option
def command(
    file: Path,
    policy: str | None,
    ledger: str | None,
    orders: str | None,
    delta: str | None,
    risk: bool,
    format_: str,
) -> int:
    """Print the cost of each mechanism of the release FILE for each privacy unit.

    Without a policy, the units are `user` under add-remove and the units that the release states.

    The exact ε is the smallest ε that is known for the mechanism alone, and for all mechanisms of
    the release together. With a policy, the command also prints the ε that the filter of each rule
    counts, as `submit` prints it. A filter divides δ so that later releases may depend on earlier
    results, and counts more.
    """
    release = load_release(file)
    compiled = load_policy(policy) if policy else None
    if ledger is not None and compiled is None:
        compiled = read_state(ledger, None, lambda state: active_policy(state).policy)
    printed_orders = _orders(orders, compiled)
    target_delta = _delta(delta, compiled)
    rows = [(m.name, _costs(m, compiled, printed_orders)) for m in release.mechanisms]
    runs = [_runs(m, compiled) for m in release.mechanisms]
    preview = None if compiled is None else _preview(release, compiled, ledger)
    if format_ == "json":
        print_json(_costs_json(rows, runs, preview, printed_orders, target_delta))
    else:
        print_note(f"ε at δ = {format_down(target_delta)}; every number is an upper bound")
        if preview is not None and any(cost.profile for cost in preview.release):
            print_note("exact: the smallest known ε of a mechanism alone")
            print_note(
                "by a filter: what a rule counts; more, since it divides δ (docs/releases.md)"
            )
        _print_text(rows, runs, preview, target_delta)
        if risk:
            _print_risks(rows, target_delta)
    return 0


def _preview(release: Release, compiled: CompiledPolicy, ledger: str | None) -> CostPreview:
    """Return the costs by filter. If the policy cannot decide the release, print why."""
    try:
        preview = read_state(ledger, compiled, lambda state: preview_costs(state, release))
    except ReleaseRejected as error:
        preview = CostPreview(((),) * len(release.mechanisms), (), tuple(map(str, error.problems)))
    for problem in preview.problems:
        print_note(f"no cost by the filter of a rule: {problem}")
    return preview


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
    unit, relation, setting = _setting(request, compiled)
    place = setting.units.index(unit)
    costs = report_costs(request.mechanism, place, request.restatements, relation, setting, orders)
    return {unit.name: cost for unit, cost in zip(setting.units, costs, strict=True)}


def _runs(request: MechanismRequest, compiled: CompiledPolicy | None) -> dict[str, LossRuns]:
    unit, relation, setting = _setting(request, compiled)
    runs = runs_by_unit(request.mechanism, unit, relation, setting, request.restatements)
    return {unit.name: own for unit, own in zip(setting.units, runs, strict=True)}


def _setting(
    request: MechanismRequest, compiled: CompiledPolicy | None
) -> tuple[PrivacyUnit, NeighbouringRelation, GroupContext]:
    """Return the unit and relation for which a mechanism is stated, and all units."""
    units = _units(request, compiled)
    names = [unit.name for unit in units]
    stated = request.unit or _only_unit(request, names, compiled)
    for name in (stated, *request.restatements):
        if name not in names:
            hint = suggest(name, names) or ""
            raise InvalidValue("P020", f"`{request.name}` names the unit `{name}`; {hint}")
    unit = units[names.index(stated)]
    problems = tuple(find_relation_problems(request.kind, request.relation, unit.relation))
    if problems:
        raise ReleaseRejected(problems).for_release(request.name)
    covers = compiled.vocabulary.covers if compiled else no_covers
    defaults = compiled.accounting.defaults if compiled else NEWEST_DEFAULTS
    setting = GroupContext(units, request.additive, request.days_read, covers, defaults.cost_rules)
    return unit, request.relation or unit.relation, setting


def _only_unit(request: MechanismRequest, names: list[str], compiled: CompiledPolicy | None) -> str:
    """Return the unit of a mechanism that states none: `user`, or the only unit of the policy.

    Raise `ReleaseRejected` if the policy has several units, as `submit` does.
    """
    if compiled is None:
        return "user"
    if len(names) > 1:
        message = f"`unit` is required; units of the policy: {', '.join(names)}"
        raise ReleaseRejected([InvalidValue("R001", f"`{request.name}`: {message}")])
    return names[0]


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


def _smallest_epsilon(
    cost: CostReport, certified: Fraction | None, delta: Fraction
) -> tuple[float | None, str]:
    """Return the smallest known ε, and its label."""
    epsilon = cost.epsilon(delta)
    if certified is not None and (epsilon is None or certified < epsilon * (1 - _SAME)):
        return _float(certified), EXACT
    return epsilon, "exact"


def _cost_json(
    costs: CostReport,
    certified: Fraction | None,
    orders: tuple[Fraction, ...],
    delta: Fraction,
) -> dict[str, object]:
    curve = dict(costs.renyi)
    return {
        "pure": _float(costs.pure),
        "rho": _float(costs.rho),
        "mu": costs.mu,
        "renyi": {format_order(order): _float(curve[order]) for order in orders},
        "epsilon": _smallest_epsilon(costs, certified, delta)[0],
        "exact-epsilon": _float(certified),
        "delta": float(costs.delta),
        "risk": attacker_risk(costs, delta).as_json(),
    }


def _costs_json(
    rows: list[tuple[str, dict[str, CostReport]]],
    runs: list[dict[str, LossRuns]],
    preview: CostPreview | None,
    orders: tuple[Fraction, ...],
    delta: Fraction,
) -> dict[str, object]:
    mechanisms: list[dict[str, object]] = []
    for number, (name, costs) in enumerate(rows):
        units = {
            unit: _cost_json(cost, certify_runs([runs[number][unit]], delta), orders, delta)
            for unit, cost in costs.items()
        }
        if preview is not None:
            for unit, fields in units.items():
                fields["filters"] = _filters_json(preview.mechanisms[number], unit)
        mechanisms.append({"name": name, "units": units})
    answer: dict[str, object] = {"delta": float(delta), "mechanisms": mechanisms}
    answer["exact-epsilon"] = {
        unit: _float(epsilon) for unit, epsilon in _certify_release(runs, delta).items()
    }
    if preview is not None:
        answer["filters"] = [cost.as_json() for cost in preview.release]
    return answer


def _certify_release(
    runs: list[dict[str, LossRuns]], delta: Fraction
) -> dict[str, Fraction | None]:
    """Return the certified ε of all mechanisms together, for each unit that all of them have."""
    units = [unit for unit in (runs[0] if runs else ()) if all(unit in own for own in runs)]
    return {unit: certify_runs([own[unit] for own in runs], delta) for unit in units}


def _filters_json(costs: Sequence[FilterCost], unit: str) -> list[dict[str, Any]]:
    return [cost.as_json() for cost in costs if cost.rule.unit == unit]


def _print_text(
    rows: list[tuple[str, dict[str, CostReport]]],
    runs: list[dict[str, LossRuns]],
    preview: CostPreview | None,
    delta: Fraction,
) -> None:
    width = max((len(unit) for _, costs in rows for unit in costs), default=0)
    for number, (name, costs) in enumerate(rows):
        click.echo(name)
        filters = preview.mechanisms[number] if preview else ()
        for unit, cost in costs.items():
            certified = certify_runs([runs[number][unit]], delta)
            click.echo(f"  {unit:<{width}}  {_report_text(cost, certified, delta)}")
            for text in (_filter_text(c, delta) for c in filters if c.rule.unit == unit):
                click.echo(f"  {'':<{width}}  {text}")
    if len(rows) > 1:
        click.echo("all mechanisms together")
        filters = preview.release if preview else ()
        for unit, epsilon in _certify_release(runs, delta).items():
            click.echo(f"  {unit:<{width}}  ε {_number_text(_float(epsilon))} {EXACT}")
            for text in (_filter_text(c, delta) for c in filters if c.rule.unit == unit):
                click.echo(f"  {'':<{width}}  {text}")


def _print_risks(rows: list[tuple[str, dict[str, CostReport]]], delta: Fraction) -> None:
    risks = [
        (name, unit, attacker_risk(cost, delta))
        for name, costs in rows
        for unit, cost in costs.items()
    ]
    click.echo("attacker success")
    for name, unit, risk in risks:
        text = risk_summary(risk) if risk.is_bounded else "no bound"
        click.echo(f"  {name}, {unit}: {text}")
    for line in assumption_lines([risk for _, _, risk in risks]):
        print_note(line)


def _report_text(cost: CostReport, certified: Fraction | None, delta: Fraction) -> str:
    parts = {"pure": _float(cost.pure), "ρ": _float(cost.rho), "μ": cost.mu}
    text = "  ".join(f"{key} {_number_text(value):<10}" for key, value in parts.items())
    delta_side = f"  δ {format_up(cost.delta)}" if cost.delta else ""
    epsilon, label = _smallest_epsilon(cost, certified, delta)
    return f"ε {f'{_number_text(epsilon)} {label}':<16}  {text}{delta_side}".rstrip()


def _filter_text(filter_cost: FilterCost, delta: Fraction) -> str:
    rule, count = filter_cost.rule, filter_cost.rule_count - 1
    amounts = ", ".join(
        f"{_SYMBOLS.get(notion, notion)} {amount}"
        for notion, amount in loss_amounts(filter_cost.cost, budget_to_json(rule.budget)).items()
    )
    method = "for"
    if isinstance(rule.budget, EpsilonDelta) and filter_cost.profile is not None:
        other_delta = rule.budget.delta != delta
        at_delta = f"at δ {format_down(rule.budget.delta)} " if other_delta else ""
        method = f"{at_delta}by the {filter_cost.profile} filter of"
        if filter_cost.method:
            method = f"{at_delta}exact ({filter_cost.method}) for"
    more = f" and {count} more rule{'s' if count > 1 else ''}" if count else ""
    return f"{amounts} {method} {rule.name}{' (each release)' * rule.each_release}{more}"


def _number_text(value: float | None) -> str:
    """Format an upper bound; a dash is a notion in which the mechanism has no bound."""
    return "–" if value is None else format_up(value)
