"""`dpolicy tune`: print tuned shares of δ, or propose a `tuned-for` section from a ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import click

from dpolicy.cli.ledger_option import open_decision_point
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.pdp.policy_changes.typical_mechanisms import typical_mechanisms
from dpolicy.policy.accounting.tuned_accounting import TunedBudget, compare_tuning
from dpolicy.privacy.certificates import format_order
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.number_text import format_down
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.decimals import format_decimal

#: Parameters of mechanisms with their weights in the mix.
Typical = list[tuple[Mapping[str, Any], Fraction]]


@click.command()
@click.argument("policy", type=click.Path())
@click.option("--ledger", help="Ledger from whose releases a `tuned-for` section is proposed.")
@format_option
def command(policy: str, ledger: str | None, format_: str) -> int:
    """Print the shares of δ that the policy set POLICY is tuned to.

    With --ledger, print a `tuned-for` section for the releases of the ledger instead. A policy must
    be fixed before the releases that it decides: do not tune it because of outputs.
    """
    compiled = load_policy(policy)
    typical = _stated(compiled) if ledger is None else _recorded(compiled, ledger)
    mix = tuple((_mechanism(fields), weight) for fields, weight in typical)
    shares, budgets = compare_tuning(compiled.accounting, compiled.policy_set.policies, mix)
    if shares is None:
        raise click.UsageError("no cumulative (ε, δ) budget of the policy admits the mechanisms")
    if format_ == "json":
        print_json(_to_json(typical, shares, budgets))
        return 0
    _print_section(typical)
    _print_shares(shares, budgets)
    return 0


def _stated(compiled: CompiledPolicy) -> Typical:
    if compiled.accounting.tuned_for is None:
        raise click.UsageError("the policy has no `tuned-for`; help: pass --ledger to propose one")
    return [(typical.parameters, typical.weight) for typical in compiled.accounting.tuned_for]


def _recorded(compiled: CompiledPolicy, ledger: str) -> Typical:
    with open_decision_point(ledger) as point:
        counted = typical_mechanisms(point, compiled.accounting.relation)
    if not counted:
        raise click.UsageError("the ledger has no mechanism that a share of δ admits")
    return [(fields, Fraction(count)) for fields, count in counted]


def _mechanism(fields: Mapping[str, Any]) -> Any:
    mechanism, problems = parse_mechanism(fields)
    if mechanism is None:
        raise problems[0]
    return mechanism


def _print_section(typical: Typical) -> None:
    click.echo("accounting:\n  profile: anchored\n  tuned-for:")
    for fields, weight in typical:
        click.echo(f"    - {_flow_text({**fields, 'weight': weight})}")


def _flow_text(value: Any) -> str:
    """Return a plain value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_text(k)}: {_flow_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Fraction):
        return format_decimal(value)
    is_plain = isinstance(value, str) and value.replace("-", "").isalpha()
    return value if is_plain else json.dumps(value)


def _print_shares(shares: DeltaShares, budgets: Sequence[TunedBudget]) -> None:
    for chain, share in shares:
        orders = ", ".join(format_order(handover.order) for handover in chain.handovers)
        what = f": orders {orders}" if orders else ""
        print_note(f"{chain.name} {format_decimal(100 * share)} %{what}")
    for budget in budgets:
        print_note(
            f"({format_decimal(budget.epsilon)}, {format_decimal(budget.delta)}) admits the mix "
            f"{format_down(budget.tuned, 4)} times, untuned {format_down(budget.anchored, 4)}"
        )


def _to_json(
    typical: Typical, shares: DeltaShares, budgets: Sequence[TunedBudget]
) -> dict[str, Any]:
    return {
        "tuned-for": [_plain({**fields, "weight": weight}) for fields, weight in typical],
        "shares": [
            {
                "part": chain.name,
                "share": float(share),
                "orders": [float(handover.order) for handover in chain.handovers],
            }
            for chain, share in shares
        ],
        "budgets": [
            {
                "epsilon": float(budget.epsilon),
                "delta": float(budget.delta),
                "tuned": float(budget.tuned),
                "untuned": float(budget.anchored),
            }
            for budget in budgets
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return float(value) if isinstance(value, Fraction) else value
