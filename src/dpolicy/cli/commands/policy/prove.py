"""`dpolicy prove`: the bounds that a policy implies for a scope, with their proofs."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import click

from dpolicy.cli.exit_codes import DENIED, UNDECIDED
from dpolicy.cli.number_option import parse_decimal
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.cli.output.proof_text import answer_lines, coalition_lines
from dpolicy.proofs.claim import make_claim
from dpolicy.proofs.coalitions import prove_coalitions
from dpolicy.proofs.history import History
from dpolicy.proofs.proof_question import parse_question
from dpolicy.proofs.prover import ProofAnswer, ProofVerdict, answer_question
from dpolicy.rules.compiler import load_policy

_EXIT_CODES = {
    ProofVerdict.HOLDS: 0,
    ProofVerdict.BROKEN: DENIED,
    ProofVerdict.UNDECIDED: UNDECIDED,
}


@click.command()
@click.argument("policy", type=click.Path())
@click.option("--when", default="always", help="Scope of the question, in CEL; default: always.")
@click.option("--unit", required=True, help="Privacy unit of the question.")
@click.option("--at", multiple=True, metavar="NAME=VALUE", help="Place, such as country=CH.")
@click.option("--epsilon", help="Claimed ε.")
@click.option("--delta", help="δ of a claimed ε; default: 0.")
@click.option("--rho", help="Claimed ρ.")
@click.option("--mu", help="Claimed μ.")
@click.option("--any", "size", type=click.IntRange(min=1), help="Size of a coalition.")
@click.option("--of", help="Label whose values form coalitions.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Directory for the history."
)
@format_option
def command(
    policy: str,
    when: str,
    unit: str,
    at: tuple[str, ...],
    epsilon: str | None,
    delta: str | None,
    rho: str | None,
    mu: str | None,
    size: int | None,
    of: str | None,
    out: Path | None,
    format_: str,
) -> int:
    """Print the smallest bounds that the policy set POLICY implies for a scope.

    The bounds hold for all releases in the scope together, also if no rule has this scope, and each
    comes with the rules that prove it. With a claim, the command proves it, or prints releases that
    the policy allows and that break it; they start from an empty ledger. --out writes them as
    release files. `--any 2 --of team` answers for any two values of the label `team`.

    Exit code 2: the claim does not hold. Exit code 6: neither a proof nor a history.
    """
    compiled = load_policy(policy)
    question = parse_question(compiled, when, unit, _parse_place(at))
    claim = make_claim(
        _number(epsilon, "--epsilon"),
        _number(delta, "--delta"),
        _number(rho, "--rho"),
        _number(mu, "--mu"),
    )
    if (size is None) is not (of is None):
        raise click.UsageError("a coalition needs both --any and --of")
    if size is not None and of is not None:
        coalition = prove_coalitions(compiled, question, size, of, claim)
        lines, answer = coalition_lines(coalition, question), coalition.decisive[1]
        value, verdict = coalition.as_json(), coalition.verdict
    else:
        answer = answer_question(compiled, question, claim)
        lines, value, verdict = answer_lines(answer), answer.as_json(), answer.verdict
    if format_ == "json":
        print_json(value)
    else:
        click.echo("\n".join(lines))
    if out is not None:
        _write_history(answer, out)
    return _EXIT_CODES[verdict]


def _parse_place(at: tuple[str, ...]) -> dict[str, str]:
    for text in at:
        if "=" not in text:
            raise click.UsageError(f"--at must be NAME=VALUE, not {text}")
    return dict(text.split("=", 1) for text in at)


def _number(text: str | None, option: str) -> Fraction | None:
    return None if text is None else parse_decimal(text, option)


def _write_history(answer: ProofAnswer, directory: Path) -> None:
    """Write the releases of the history that breaks the claim, else of the worst one."""
    histories = [answer.broken_by, *answer.worst]
    history: History | None = next((own for own in histories if own is not None), None)
    if history is None:
        print_note("there is no history to write")
        return
    directory.mkdir(parents=True, exist_ok=True)
    for release in history.releases:
        text = json.dumps(release, ensure_ascii=False, indent=2)
        (directory / f"{release['release']}.json").write_text(f"{text}\n", "utf-8")
    print_note(f"wrote {len(history.releases)} releases to {directory}")
