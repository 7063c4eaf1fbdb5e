"""`dpolicy implies`: whether the scope of one rule lies inside that of another."""

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
    """Say whether the scope of the rule SMALLER lies inside that of LARGER.

    Both are names of rules of the policy set PATH. If not, a mechanism is shown that matches the
    first rule and not the second.
    """
    compiled = load_policy(path)
    schema = compiled.checked_policy_set.vocabulary.schema
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
        known = suggest(name, names) or "`dpolicy rules --all` lists them"
        raise click.UsageError(f"there is no rule `{name}`; {known}")
    return conjunction(names[name].predicates)
