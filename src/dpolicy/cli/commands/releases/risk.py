"""`dpolicy risk`: print the attacker success that a budget or the rules of a policy permit."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import click

from dpolicy.cli.ledger_option import read_state
from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.privacy.budget import (
    Budget,
    EpsilonDelta,
    Gdp,
    Unlimited,
    Zcdp,
    budget_amount,
    budget_to_json,
    format_budget,
)
from dpolicy.privacy.risk.attacker_risk import (
    DEFAULT_DELTA,
    FALSE_POSITIVE_RATES,
    PRIORS,
    AttackerRisk,
    risk_of_budget,
)
from dpolicy.privacy.risk.risk_text import assumption_lines, risk_lines, risk_summary
from dpolicy.rules.compiler import CompiledPolicy, load_policy

#: False-positive rates of the trade-off curve in JSON.
_CURVE = (0.0, 0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)

#: A budget with the unit it protects, and whether it bounds each release alone.
_ProtectedBudget = tuple[Budget, str, bool]


@click.command()
@click.option("--epsilon", help="ε of a budget.")
@click.option("--delta", help="δ of the budget; with ρ or μ, the δ of posteriors (default 1e-7).")
@click.option("--rho", help="ρ of a budget (zCDP).")
@click.option("--mu", help="μ of a budget (Gaussian DP).")
@click.option("--policy", type=click.Path(), help="Policy set whose budgets are printed.")
@click.option("--ledger", help="Ledger whose active policy has the budgets.")
@click.option("--prior", "priors", multiple=True, help="Belief before the releases; repeatable.")
@click.option("--false-alarms", "rates", multiple=True, help="False-positive rate; repeatable.")
@format_option
def command(
    epsilon: str | None,
    delta: str | None,
    rho: str | None,
    mu: str | None,
    policy: str | None,
    ledger: str | None,
    priors: tuple[str, ...],
    rates: tuple[str, ...],
    format_: str,
) -> int:
    """Print how much the best attacker can learn within a budget.

    The budget is --epsilon with --delta, --rho or --mu. With --policy or --ledger the command
    prints one line for each budget of the enforced rules. All numbers are upper bounds for the
    worst case, also if releases depend on earlier results (docs/risk.md).
    """
    sources = {"--epsilon": epsilon, "--rho": rho, "--mu": mu, "--policy": policy}
    chosen = [name for name, value in {**sources, "--ledger": ledger}.items() if value is not None]
    if len(chosen) != 1:
        choices = ", ".join((*sources, "--ledger"))
        raise click.UsageError(f"exactly one of {choices} is required, not {len(chosen)}")
    leak = None if delta is None else _probability(delta, "--delta", below_one=True)
    if policy is not None or ledger is not None:
        compiled = load_policy(policy) if policy is not None else _read_policy(str(ledger))
        _print_policy(compiled, _posterior_delta(leak, compiled), format_)
        return 0
    budget = _budget(epsilon, rho, mu, leak)
    risk = risk_of_budget(budget, DEFAULT_DELTA if leak is None else leak)
    beliefs = [float(_probability(text, "--prior")) for text in priors] or list(PRIORS)
    alarms = [float(_probability(text, "--false-alarms")) for text in rates]
    if format_ == "json":
        print_json(_risk_json(budget, risk, beliefs, alarms or FALSE_POSITIVE_RATES))
        return 0
    click.echo(format_budget(budget))
    for line in risk_lines(risk, beliefs, alarms or FALSE_POSITIVE_RATES):
        click.echo(f"  {line}")
    _print_assumptions([risk])
    return 0


def _read_policy(ledger: str) -> CompiledPolicy:
    return read_state(ledger, None, lambda state: active_policy(state).policy)


def _posterior_delta(stated: Fraction | None, compiled: CompiledPolicy) -> Fraction:
    """Return the δ of posteriors of ρ, μ and Rényi budgets: stated, of the policy, or 1e-7."""
    return stated or compiled.accounting.delta or DEFAULT_DELTA


def _budget(epsilon: str | None, rho: str | None, mu: str | None, leak: Fraction | None) -> Budget:
    if epsilon is not None:
        return EpsilonDelta(_amount(epsilon, "--epsilon"), leak or Fraction(0))
    if rho is not None:
        return Zcdp(_amount(rho, "--rho"))
    return Gdp(_amount(str(mu), "--mu"))


def _amount(text: str, option: str) -> Fraction:
    value = parse_decimal(text, option)
    if value < 0:
        raise click.UsageError(f"{option} must be at least 0, not {text}")
    return value


def _probability(text: str, option: str, *, below_one: bool = False) -> Fraction:
    value = parse_decimal(text, option)
    if not 0 <= value <= 1 or (below_one and value == 1):
        end = "below 1" if below_one else "at most 1"
        raise click.UsageError(f"{option} must be at least 0 and {end}, not {text}")
    return value


def _risk_json(
    budget: Budget, risk: AttackerRisk, priors: list[float], rates: tuple[float, ...] | list[float]
) -> dict[str, object]:
    return {
        "budget": budget_to_json(budget),
        "risk": {
            "posterior": {str(prior): risk.posterior(prior) for prior in priors},
            "posterior-failure": risk.posterior_failure,
            "tpr": {str(rate): risk.true_positive_rate(rate) for rate in rates},
            "advantage": risk.advantage,
            "guess": {str(prior): risk.guess(prior) for prior in priors},
            "tradeoff": [list(point) for point in risk.tradeoff_curve(_CURVE)],
        },
        "assumptions": assumption_lines([risk]),
    }


def _print_policy(compiled: CompiledPolicy, delta: Fraction, format_: str) -> None:
    counts: Counter[_ProtectedBudget] = Counter(
        (rule.budget, rule.unit, rule.each_release)
        for rule, witness in compiled.all_rules
        if witness is None
    )
    risks = {key: risk_of_budget(key[0], delta) for key in counts}
    if format_ == "json":
        budgets = [_row_json(key, count, risks[key]) for key, count in counts.items()]
        print_json({"budgets": budgets, "assumptions": assumption_lines(list(risks.values()))})
        return
    rows = sorted(counts, key=lambda key: (key[2], key[1], budget_amount(key[0]) or ("", 0)))
    budgets_width = max((len(format_budget(budget)) for budget, _, _ in rows), default=0)
    units_width = max((len(unit) for _, unit, _ in rows), default=0)
    for key in rows:
        budget, unit, each_release = key
        where = f"{counts[key]} rule{'s' * (counts[key] > 1)}{' (each release)' * each_release}"
        text = "no bound" if isinstance(budget, Unlimited) else risk_summary(risks[key])
        click.echo(
            f"{format_budget(budget):<{budgets_width}}  {unit:<{units_width}}  {text}  {where}"
        )
    _print_assumptions(list(risks.values()))


def _row_json(key: _ProtectedBudget, count: int, risk: AttackerRisk) -> dict[str, object]:
    budget, unit, each_release = key
    return {
        "budget": budget_to_json(budget),
        "unit": unit,
        "each-release": each_release,
        "rules": count,
        "risk": risk.as_json(),
    }


def _print_assumptions(risks: list[AttackerRisk]) -> None:
    for line in assumption_lines(risks):
        print_note(line)
