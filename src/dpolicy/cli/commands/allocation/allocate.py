"""`dpolicy allocate`: selects among competing releases and charges the selected ones together."""

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
    help="Allocation strategy.",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Price file for the strategy `price`; read before the round and rewritten after it.",
)
@click.option("--dry-run", is_flag=True, help="Print the selection without writing to the ledger.")
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
    """Select releases from FILE (a YAML list or a directory) that fit the remaining budget.

    The key `utility` of a release is its value; the default is 1. The selected releases are charged
    in one commit. The others are not recorded and can be submitted again.
    """
    releases = [entry.release for entry in load_batch(file)]
    with open_decision_point(ledger) as point:
        policy = point.policy
        carried = load_prices(prices, policy) if prices and policy else None
        result = allocate(point, releases, strategy, by, dry_run=dry_run, carried_prices=carried)
    if format_ == "json":
        print_json({"strategy": strategy, "dry-run": dry_run, **result.as_json()})
    else:
        _print(result, dry_run)
    # Save last, so that the user sees the charged releases even if the file cannot be written.
    if prices and policy and result.carried_prices and not dry_run:
        save_prices(prices, policy, result.carried_prices)
    return 0


def _print(result: AllocationResult, dry_run: bool) -> None:
    allowed = {decision.release: decision.allowed for decision in result.decisions}
    for release in result.already_decided:
        decision = "" if dry_run else ("allowed  " if allowed[release] else "denied  ")
        click.echo(f"{decision}{release}  (recorded decision)")
    for release in result.selected:
        click.echo(f"{click.style('selected', fg='green')}  {release}")
    for candidate in result.not_selected:
        reason = _reason(candidate)
        click.echo(f"{click.style('not selected', fg='yellow')}  {candidate.release}  {reason}")
        for offer in candidate.counter_offers:
            change, *values = offer.values()
            text = " ".join(str(value) for value in values)
            click.echo(f"              would be allowed with: {change} {text}")
    click.echo(
        f"utility {result.utility:g} of at most {result.bound:g}, gap {100 * result.gap:.1f} %"
    )
    for price in result.prices if dry_run else ():
        click.echo(
            f"shadow price of {price.rule.name} @ {price.rule.unit}: "
            f"about {price.marginal_utility:.4g} more utility for one more {price.notion}"
        )


def _reason(candidate: RejectedCandidate) -> str:
    """Return why a candidate was not selected."""
    if candidate.rejection_reasons:
        return "; ".join(candidate.rejection_reasons)
    rules = ", ".join(
        f"{b.rule} @ {b.unit}" + (f" (price {b.price:.4g})" if b.price else "")
        for b in candidate.binding
    )
    if not candidate.fits_alone:
        return f"exceeds the remaining budget on its own: {rules}"
    if rules:
        return f"fits on its own but not together with the selected releases: {rules}"
    if candidate.opportunity_cost:
        cost = f"{candidate.opportunity_cost:.4g}"
        return f"still fits, but earlier rounds paid {cost} for the same budget"
    return "still fits; submit it again"
