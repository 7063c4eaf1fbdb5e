"""`dpolicy calibrate`: compute the least noise that meets a target, or that fits a ledger now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, read_state
from dpolicy.cli.mechanism_options import (
    mechanism_fields,
    mechanism_options,
    name_missing_options,
)
from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.decision_text import print_decision, reason_text
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.decisions.completion import complete_meaning
from dpolicy.errors import Denied, InvalidValue, ReleaseRejected
from dpolicy.pdp.dry_runs.noise_calibration import CalibratedNoise, calibrate_mechanism
from dpolicy.pdp.request_evaluation import active_policy
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.calibration import CALIBRATED_PARAMETERS, calibrate_noise
from dpolicy.privacy.cost_report import report_costs
from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.releases.decision import Decision, Reason
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy, load_policy

#: Parameters of a mechanism that the command takes as options.
_PARAMETERS = ("sensitivity", "count", "sampling_rate", "steps", "queries", "participations")

#: δ at which the exact ε is printed if neither the command nor the policy states one.
_DEFAULT_DELTA = Fraction("1e-7")

#: Number of binding rules that the text names.
_MAX_BINDING_RULES = 3


@click.command()
@click.option(
    "--kind",
    required=True,
    type=click.Choice(sorted(CALIBRATED_PARAMETERS)),
    help="Mechanism kind.",
)
@click.option("--epsilon", help="Target ε.")
@click.option("--delta", help="Target δ; default: the policy's δ, else 0 (pure DP).")
@click.option("--policy", type=click.Path(), help="Policy set that must allow the mechanism.")
@click.option(
    "--ledger",
    help="Ledger in which the mechanism must be allowed now; without --epsilon and --policy, "
    "default $DPOLICY_LEDGER.",
)
@click.option(
    "--sensitivity",
    help="Sensitivity: L2 for Gaussian noise, L1 for Laplace noise; default 1.",
)
@click.option("--count", help="Number of runs.")
@click.option("--sampling-rate", help="Poisson sampling rate.")
@click.option("--steps", help="Number of steps (dp-sgd, tree-aggregation).")
@click.option("--queries", help="Number of queries (pate).")
@click.option("--participations", help="Participations of one unit (tree-aggregation).")
@mechanism_options
@author_option
@format_option
def command(
    kind: str,
    epsilon: str | None,
    delta: str | None,
    policy: str | None,
    ledger: str | None,
    by: str,
    format_: str,
    **options: Any,
) -> int:
    """Print the least noise of a mechanism, rounded up.

    With --epsilon alone, the noise makes one release (ε, δ)-DP for one unit. It is not the noise
    that a rule with this budget admits: a rule also counts what was released before.

    With --ledger, it is the least noise that `submit` allows now; with --policy, on an empty
    ledger. The other options describe the mechanism as a release file does. With --epsilon, the
    filter of the policy must also admit the mechanism alone to a budget of (ε, δ).
    """
    parameters = {
        name.replace("_", "-"): parse_decimal(text, f"--{name.replace('_', '-')}")
        for name, text in ((name, options.pop(name)) for name in _PARAMETERS)
        if text is not None
    }
    target = _read_target(epsilon, delta)
    if epsilon is None and policy is None and ledger is None:
        ledger = os.environ.get("DPOLICY_LEDGER")
    if ledger is not None or policy is not None:
        mechanism = {"kind": kind, **parameters}
        fields = {"name": kind, "mechanism": mechanism, **mechanism_fields(**options)}
        return _calibrate_to_ledger(fields, by, target, (ledger, policy), format_)
    if target[0] is None:
        raise click.UsageError("pass --epsilon for a target, or --ledger for what fits now")
    try:
        return _calibrate_to_target(kind, parameters, target[0], target[1] or Fraction(0), format_)
    except InvalidValue as error:
        if error.code != "M019" or target[1] is not None:
            raise
        message = error.message.replace("at this δ", "at δ 0")
        raise InvalidValue("M019", f"{message}; help: pass --delta") from None


def _read_target(epsilon: str | None, delta: str | None) -> tuple[Fraction | None, Fraction | None]:
    target = (
        None if epsilon is None else parse_decimal(epsilon, "--epsilon"),
        None if delta is None else parse_decimal(delta, "--delta"),
    )
    if not (target[0] is None or 0 < target[0] <= 10**5) or not 0 <= (target[1] or 0) < 1:
        raise click.UsageError("--epsilon must be above 0, and --delta at least 0 and below 1")
    return target


def _calibrate_to_target(
    kind: str, parameters: Mapping[str, object], epsilon: Fraction, delta: Fraction, format_: str
) -> int:
    noise, reached = calibrate_noise(kind, parameters, epsilon, delta)
    name = CALIBRATED_PARAMETERS[kind]
    if format_ == "json":
        print_json({"kind": kind, name: noise, "epsilon": reached, "delta": float(delta)})
    else:
        click.echo(f"{name}: {noise!r}")
        print_note(f"ε {format_up(reached)} exact at δ {format_down(delta)}, for one release alone")
        print_note("help: pass --ledger for the least noise that `submit` allows now")
    return 0


def _calibrate_to_ledger(
    fields: Mapping[str, Any],
    by: str,
    target: tuple[Fraction | None, Fraction | None],
    places: tuple[str | None, str | None],
    format_: str,
) -> int:
    ledger, policy = places
    compiled = load_policy(policy) if policy else None

    def calibrate(state: LedgerState) -> tuple[CalibratedNoise, float | None, Fraction]:
        enforced = active_policy(state)
        delta = target[1]
        if delta is None:
            delta = enforced.policy.accounting.delta
        delta = _DEFAULT_DELTA if delta is None else delta
        budget = None if target[0] is None else EpsilonDelta(target[0], delta)
        noise = calibrate_mechanism(state, fields, by, budget)
        return noise, _exact_epsilon(noise.release, enforced.policy, delta), delta

    try:
        noise, epsilon, delta = read_state(ledger, compiled, calibrate)
    except ReleaseRejected as error:
        raise name_missing_options(error) from None
    except Denied as error:
        return _print_denial(error, fields["mechanism"]["kind"], format_)
    if format_ == "json":
        print_json(_noise_json(noise, epsilon, delta))
    else:
        click.echo(f"{noise.parameter}: {noise.value!r}")
        place = "now" if ledger else "on an empty ledger"
        actor = "this policy" if policy else "`submit`"
        print_note(f"the least noise that {actor} allows {place}")
        _print_explanation(noise, epsilon, delta)
        if not noise.binding:
            print_note("no rule denies less noise" if target[0] is None else "binding  --epsilon")
    return 0


def _exact_epsilon(release: Release, policy: CompiledPolicy, delta: Fraction) -> float | None:
    """Return the exact ε of a release with one mechanism, for the unit that it is stated for."""
    request, meaning = release.mechanisms[0], complete_meaning(release, policy).mechanisms[0]
    context = GroupContext(
        tuple(policy.units.values()),
        request.additive,
        request.days_read,
        policy.vocabulary.covers,
        policy.accounting.defaults.cost_rules,
    )
    position = list(policy.units).index(meaning.unit)
    reports = report_costs(
        request.mechanism,
        position,
        request.restatements,
        meaning.relation,
        context,
        policy.accounting.orders,
    )
    return reports[position].epsilon(delta)


def _noise_json(noise: CalibratedNoise, epsilon: float | None, delta: Fraction) -> dict[str, Any]:
    return {
        "kind": noise.release.mechanisms[0].kind,
        noise.parameter: noise.value,
        "epsilon": epsilon,
        "delta": float(delta),
        "binding": [{"rule": reason.rule, "unit": reason.unit} for reason in noise.binding],
        "reasons": [reason.as_json() for reason in noise.decision.reasons],
    }


def _print_explanation(noise: CalibratedNoise, epsilon: float | None, delta: Fraction) -> None:
    if epsilon is not None:
        print_note(f"ε {format_up(epsilon)} exact at δ {format_down(delta)}, for one release alone")
    reasons = {_rule_key(reason): reason_text(reason) for reason in noise.decision.reasons}
    for reason in noise.binding[:_MAX_BINDING_RULES]:
        text = reasons.get(_rule_key(reason), f"{reason.rule}  unit {reason.unit}")
        print_note(f"binding  {text}")


def _rule_key(reason: Reason) -> tuple[str, str, bool]:
    return reason.rule, reason.unit, reason.each_release


def _print_denial(error: Denied, kind: str, format_: str) -> int:
    """Print the rules that deny the mechanism with any noise."""
    decision = error.decision
    if format_ == "json" and isinstance(decision, Decision):
        print_json({"kind": kind, CALIBRATED_PARAMETERS[kind]: None, **decision.as_json()})
    elif isinstance(decision, Decision):
        print_note(f"no noise of `{kind}` is allowed; with the largest noise:")
        print_decision(decision)
        if decision.uncovered:
            print_note("help: pass --attributes, so that a rule covers the mechanism")
        if decision.predicate_errors:
            print_note("help: pass --label NAME=VALUE for each label that a rule reads")
    return DENIED
