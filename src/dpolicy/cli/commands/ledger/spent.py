"""`dpolicy spent`: print what was spent in any scope, and who spent it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import click

from dpolicy.cli.ledger_option import ledger_option, open_decision_point
from dpolicy.cli.location_option import location_option, parse_location
from dpolicy.cli.output.decision_text import location_text
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.pdp.spending.spending import Share, Spending
from dpolicy.privacy.number_text import format_down, format_up
from dpolicy.privacy.risk.attacker_risk import PRIORS
from dpolicy.privacy.risk.risk_text import assumption_lines, format_percent

#: Default number of releases that each format lists.
_LISTED = {"text": 10, "json": 1_000}

_ADAPTIVE_NOTE = (
    "the numbers are upper bounds for releases that do not depend on earlier results; against "
    "adaptive choice, the guarantee is the budget of a rule"
)


@click.command()
@ledger_option
@click.option("--when", help="Scope: a CEL expression over attributes, labels, mechanism and by.")
@click.option("--rule", help="Scope: that of a rule, also of a pruned or unlimited rule.")
@click.option("--unit", help="Privacy unit; default: that of the rule, or the largest.")
@location_option
@click.option("--since", help="First day of the releases, such as 2026-10-28.")
@click.option("--by", multiple=True, help="Author of the releases; repeatable.")
@click.option("--delta", help="δ at which ε is computed; default: the δ of the rule or policy.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Number of releases to list; default: 10 in text, 1000 in JSON.",
)
@format_option
def command(
    ledger: str,
    when: str | None,
    rule: str | None,
    unit: str | None,
    at: tuple[str, ...],
    since: str | None,
    by: tuple[str, ...],
    delta: str | None,
    limit: int | None,
    format_: str,
) -> int:
    """Print what recorded releases spent in a scope, and who spent it.

    Without --when and --rule, the scope is everything. The numbers are those of the place with the
    largest ε, or of the place with the largest ε within --at.
    """
    with open_decision_point(ledger) as point:
        spending = point.spent(
            when,
            rule=rule,
            unit=unit,
            at=parse_location(at),
            since=since,
            by=by or None,
            delta=delta,
            limit=_LISTED[format_] if limit is None else limit,
        )
    if format_ == "json":
        print_json(spending.as_json())
    else:
        _print_spending(spending)
    return 0


def _print_spending(spending: Spending) -> None:
    print_note("spent: all releases of the scope together; numbers are rounded up")
    scope = spending.scope["rule"] or spending.scope["when"] or "all releases"
    click.echo(f"{scope}  unit {spending.unit}{location_text(spending.location)}")
    for line in _number_lines(spending):
        click.echo(f"  {line}")
    if spending.authors:
        click.echo("by author")
    for share in spending.authors[: _LISTED["text"]]:
        count = f"{share.count} release{'' if share.count == 1 else 's'}"
        click.echo(f"  ε {_up(share.epsilon):<10}  {share.by or '(no author)'}  {count}")
    if len(spending.authors) > _LISTED["text"]:
        click.echo(f"  … and {len(spending.authors) - _LISTED['text']} more")
    if spending.releases:
        click.echo("by release")
    for share in spending.releases:
        click.echo(f"  ε {_up(share.epsilon):<10}  {_release_text(share)}")
    rest = spending.release_count - len(spending.releases)
    if spending.releases and rest:
        click.echo(f"  … and {rest} more")
    for line in assumption_lines([spending.risk]):
        print_note(line)
    for note in (*spending.notes, _ADAPTIVE_NOTE):
        print_note(f"note: {note}")


def _number_lines(spending: Spending) -> Iterator[str]:
    delta = format_down(spending.delta)
    yield f"ε {_up(spending.epsilon)} at δ {delta}, the best conversion over many Rényi orders"
    if spending.exact is not None:
        yield f"ε {_up(spending.exact)} at δ {delta}, exact: an accounting value, no guarantee"
    yield f"ρ {_up(spending.rho)}  μ {_up(spending.mu)}"
    beliefs = ", ".join(format_percent(spending.risk.posterior(prior)) for prior in PRIORS)
    priors = ", ".join(format_percent(prior) for prior in PRIORS)
    yield f"an attacker who believes {priors} ends at no more than {beliefs}"


def _release_text(share: Share) -> str:
    return f"{share.name}  {share.by}".rstrip()


def _up(amount: Fraction | float | None) -> str:
    return "∞" if amount is None else format_up(amount)
