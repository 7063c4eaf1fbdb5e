"""`dpolicy implies`: compare the scopes of two rules."""

from __future__ import annotations

import click

from dpolicy.cli.output.printing import format_option, print_json
from dpolicy.predicates.expression import Predicate
from dpolicy.predicates.implication.implication_check import Implied, Refuted, conjunction, implies
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.rules.lints import format_predicate_input
from dpolicy.text.did_you_mean import suggest


@click.command()
@click.argument("path", type=click.Path())
@click.argument("smaller")
@click.argument("larger")
@format_option
def command(path: str, smaller: str, larger: str, format_: str) -> int:
    """Check whether the scope of the rule SMALLER is inside the scope of LARGER.

    Both are names of rules of the policy set PATH. If the answer is no, the command prints a
    mechanism that matches the first rule and not the second.
    """
    compiled = load_policy(path)
    schema = compiled.schema
    answer = implies(_scope(compiled, smaller), _scope(compiled, larger), schema)
    refuted = isinstance(answer, Refuted)
    example = format_predicate_input(answer.counterexample) if isinstance(answer, Refuted) else None
    verdict = "yes" if isinstance(answer, Implied) else "no" if refuted else "undecided"
    if format_ == "json":
        print_json({"implies": {"yes": True, "no": False}.get(verdict), "counter-example": example})
    elif verdict == "yes":
        click.echo(f"every mechanism in `{smaller}` is in `{larger}`")
    elif verdict == "no":
        click.echo(f"not every mechanism in `{smaller}` is in `{larger}`, for example\n  {example}")
    else:
        click.echo(f"undecided: {getattr(answer, 'reason', '')}")
    return 0


def _scope(compiled: CompiledPolicy, name: str) -> Predicate:
    names = {rule.name: rule for rule, _ in compiled.all_rules}
    if name not in names:
        hint = suggest(name, names) or "run `dpolicy rules --all` to list all rules"
        raise click.UsageError(f"unknown rule `{name}`; {hint}")
    return conjunction(names[name].predicates)
