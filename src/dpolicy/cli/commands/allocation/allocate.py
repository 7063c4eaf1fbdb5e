"""`dpolicy allocate`: chooses among releases that compete, and charges the winners together."""

from __future__ import annotations

from pathlib import Path

import click

from dpolicy.allocation.batch_file import load_batch
from dpolicy.allocation.price_file import load_prices, save_prices
from dpolicy.allocation.round import allocate
from dpolicy.allocation.round_result import AllocationResult, RejectedCandidate
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.printing import format_option, print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option(
    "--strategy",
    type=click.Choice(tuple(STRATEGIES)),
    default="efficient",
    show_default=True,
    help="How to choose.",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Carries prices from round to round, for the strategy `price`: read, and written anew.",
)
@click.option("--dry-run", is_flag=True, help="Choose, and write nothing.")
@format_option
def command(
    file: Path,
    ledger: str,
    by: str,
    strategy: str,
    prices: Path | None,
    dry_run: bool,
    format_: str,
) -> int:
    """Choose among the releases of FILE, a YAML list or a directory of releases.

    Each release says its `utility`; left out, it is 1. The winners are charged in one commit.
    Losers are not recorded and may ask again.
    """
    releases = [entry.release for entry in load_batch(file)]
    with open_decision_point(ledger) as point:
        policy = point.policy
        market = load_prices(prices, policy) if prices and policy else None
        found = allocate(point, releases, strategy, by, dry_run=dry_run, market=market)
    if format_ == "json":
        print_json({"strategy": strategy, "dry-run": dry_run, **found.as_json()})
    else:
        _print(found, dry_run)
    if (
        prices and policy and found.carried_prices and not dry_run
    ):  # last: what was charged is told first
        save_prices(prices, policy, found.carried_prices)
    return 0


def _print(result: AllocationResult, dry_run: bool) -> None:
    allowed = {decision.release: decision.allowed for decision in result.decisions}
    for release in result.already_decided:
        word = "" if dry_run else ("allowed  " if allowed[release] else "denied  ")
        click.echo(f"{word}{release}  (decided before)")
    for release in result.selected:
        click.echo(f"{click.style('would win' if dry_run else 'allowed', fg='green')}  {release}")
    for loser in result.not_selected:
        click.echo(f"{click.style('not chosen', fg='yellow')}  {loser.release}  {_why(loser)}")
        for offer in loser.counter_offers:
            change, *what = offer.values()
            click.echo(f"            would fit: {change} {' '.join(str(w) for w in what)}")
    click.echo(
        f"utility {result.utility:g} of at most {result.bound:g}, gap {100 * result.gap:.1f} %"
    )
    for price in result.prices if dry_run else ():
        where = f"{price.rule.name} @ {price.rule.unit}"
        click.echo(
            f"one more {price.notion} for {where} would be worth about {price.marginal_utility:.4g}"
        )


def _why(loser: RejectedCandidate) -> str:
    if loser.refusal_reasons:
        return "; ".join(loser.refusal_reasons)
    rules = ", ".join(
        f"{b.rule} @ {b.unit}" + (f" (price {b.price:.4g})" if b.price else "")
        for b in loser.binding
    )
    if not loser.fits_alone:
        return f"does not fit even alone: {rules}"
    if rules:
        return f"fits alone, not beside the others: {rules}"
    if loser.opportunity_cost:
        return (
            f"would still fit; earlier rounds paid {loser.opportunity_cost:.4g} for what it takes"
        )
    return "would still fit: ask again"
