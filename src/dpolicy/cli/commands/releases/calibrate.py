"""`dpolicy calibrate`: compute the smallest noise with which a mechanism meets a target."""

from __future__ import annotations

from fractions import Fraction

import click

from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.privacy.calibration import CALIBRATED_PARAMETERS, calibrate_noise


@click.command()
@click.option(
    "--kind",
    required=True,
    type=click.Choice(sorted(CALIBRATED_PARAMETERS)),
    help="Mechanism kind.",
)
@click.option("--epsilon", required=True, help="Target ε.")
@click.option("--delta", default="0", help="Target δ; 0 for pure DP.")
@click.option(
    "--sensitivity",
    help="Sensitivity: L2 for Gaussian noise, L1 for Laplace noise; default 1.",
)
@click.option("--count", help="Number of runs.")
@click.option("--sampling-rate", help="Poisson sampling rate.")
@click.option("--steps", help="Number of steps (dp-sgd, tree-aggregation).")
@click.option("--queries", help="Number of queries (pate).")
@click.option("--participations", help="Participations of one unit (tree-aggregation).")
@format_option
def command(kind: str, epsilon: str, delta: str, format_: str, **parameters: str | None) -> int:
    """Print the noise that makes a mechanism (ε, δ)-DP for one unit, rounded up."""
    fields: dict[str, object] = {
        key.replace("_", "-"): parse_decimal(text, f"--{key.replace('_', '-')}")
        for key, text in parameters.items()
        if text is not None
    }
    target = parse_decimal(epsilon, "--epsilon"), parse_decimal(delta, "--delta")
    if not 0 < target[0] <= 10**5 or not 0 <= target[1] < 1:
        raise click.UsageError("--epsilon must be above 0, and --delta at least 0 and below 1")
    noise, reached = calibrate_noise(kind, fields, Fraction(target[0]), Fraction(target[1]))
    name = CALIBRATED_PARAMETERS[kind]
    if format_ == "json":
        print_json({"kind": kind, name: noise, "epsilon": reached, "delta": float(target[1])})
    else:
        click.echo(f"{name}: {noise!r}")
        print_note(f"ε {reached:.6g} at δ {float(target[1]):g}")
    return 0
