"""`dpolicy headroom`: print how many more releases of one content fit now."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.cli.exit_codes import DENIED
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.decision_text import budget_text, format_loss, location_text
from dpolicy.cli.output.offer_text import offer_text
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.decisions.headroom.headroom import Headroom, RuleHeadroom
from dpolicy.releases.body import Body
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import load_release

#: Number of rules in the text. The JSON has all rules.
MAX_RULES = 20


@click.command()
@click.argument("release")
@ledger_option
@author_option
@click.option(
    "--most-accurate", is_flag=True, help="Search also the version with the least noise that fits."
)
@format_option
def command(release: str, ledger: str, by: str, most_accurate: bool, format_: str) -> int:
    """Print how many more releases like RELEASE `submit` would allow now, for each rule.

    RELEASE is a release file, or the id of a recorded release. Nothing is written.
    """
    content = load_release(Path(release)) if Path(release).exists() else release
    with open_decision_point(ledger) as point:
        if isinstance(content, str) and not point.read_entries(lambda s: release in s.entries):
            raise click.UsageError(f"`{release}` is neither a file nor a recorded release")
        headroom = point.headroom(content, by, most_accurate=most_accurate)
    if format_ == "json":
        print_json(headroom.as_json())
    else:
        _print_headroom(headroom)
        if most_accurate:
            _print_version(headroom, content.body if isinstance(content, Release) else None)
    return DENIED if headroom.more == 0 else 0


def _print_headroom(headroom: Headroom) -> None:
    print_note("spent and alone: as the filter of each rule counts them")
    click.echo(_summary(headroom))
    for name in headroom.uncovered:
        click.echo(f"  no cumulative rule covers mechanism `{name}`")
    for error in headroom.predicate_errors:
        click.echo(f"  {error}")
    printed = headroom.rules[:MAX_RULES]
    width = max((len(_count_text(rule.more)) for rule in printed), default=0)
    for rule in printed:
        click.echo(f"  {_rule_text(rule, width)}")
    if len(headroom.rules) > MAX_RULES:
        print_note(f"… and {len(headroom.rules) - MAX_RULES} more rules; all with --format json")


def _summary(headroom: Headroom) -> str:
    if headroom.more is None:
        return f"no limit for releases like {headroom.release}"
    limit = headroom.first_limit
    if limit is None:
        return f"0 more like {headroom.release}"
    at = ", ".join(f"{name}={value}" for name, value in limit.location.items())
    place = f"unit {limit.unit}, at {at}" if at else f"unit {limit.unit}"
    return f"{headroom.more:,} more like {headroom.release}; first limit: {limit.rule} ({place})"


def _count_text(more: int | None) -> str:
    return "no limit" if more is None else f"{more:,} more"


def _rule_text(rule: RuleHeadroom, width: int) -> str:
    place = f"{rule.rule}  unit {rule.unit}{location_text(rule.location)}"
    cost, budget = format_loss(rule.cost, rule.budget), budget_text(rule.budget)
    if rule.each_release:
        losses = f"{cost} of {budget} (each release alone)"
    else:
        losses = f"spent {format_loss(rule.spent, rule.budget)} of {budget} (alone {cost})"
    return f"{_count_text(rule.more):>{width}}  {place}  {losses}"


def _print_version(headroom: Headroom, body: Body | None) -> None:
    """Print the version with the least noise; with the `body`, with the values before."""
    offer = headroom.most_accurate
    if offer is None:
        click.echo("no version with other noise is known to fit")
        return
    click.echo(f"most accurate version that fits now: {offer_text(offer, body)}")
