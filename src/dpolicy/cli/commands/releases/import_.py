"""`dpolicy import`: record and charge past releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from dpolicy.cli.ledger_option import author_option, ledger_option, open_decision_point
from dpolicy.cli.output.decision_text import format_loss, location_text
from dpolicy.cli.output.printing import format_option, print_json, print_note
from dpolicy.integrations.past_releases.import_files import (
    ImportContent,
    ImportContext,
    PastRelease,
    load_import_files,
)
from dpolicy.integrations.past_releases.mapping_file import load_mapping
from dpolicy.integrations.registry.registry_import import RegistryImportOptions
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.many_releases.past_releases import ImportPreview
from dpolicy.pdp.rule_status import RuleStatus, rank_by_use
from dpolicy.privacy.budget import budget_to_json, format_budget
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

#: Number of charged rules that a dry run prints.
_MAX_RULES = 10
#: Number of releases that an import names.
_MAX_NAMES = 50


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@ledger_option
@author_option
@click.option("--because", default="", help="Reason, stored in the ledger.")
@click.option(
    "--mapping",
    type=click.Path(path_type=Path),
    help="Mapping file: which columns of a table give the fields of a release.",
)
@click.option("--dry-run", is_flag=True, help="Print what an import would change; write nothing.")
@click.option("--unit", help="Registry: policy unit that corresponds to the entry's privacy unit.")
@click.option(
    "--relation",
    type=click.Choice([str(relation) for relation in NeighbouringRelation]),
    help="Registry: neighbouring relation of the entry; default add-remove.",
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    help="Registry: number of publications per unit for an entry of several releases.",
)
@click.option("--label", "labels", multiple=True, help="Registry: label as name=value; repeatable.")
@format_option
def command(
    files: tuple[Path, ...],
    ledger: str,
    by: str,
    because: str,
    mapping: Path | None,
    dry_run: bool,
    unit: str | None,
    relation: str | None,
    times: int | None,
    labels: tuple[str, ...],
    format_: str,
) -> int:
    """Record the past releases FILES and charge them, even if a budget is exceeded.

    FILES are releases, lists of releases, tables (CSV, Parquet or lists of rows, with --mapping),
    entries of the OpenDP deployments registry, or folders of such files. All are recorded in one
    commit, or none. A release that is already recorded is not charged again.
    """
    options = RegistryImportOptions(
        unit,
        NeighbouringRelation(relation or NeighbouringRelation.ADD_REMOVE),
        times,
        _labels(labels),
    )
    table = None if mapping is None else load_mapping(mapping)
    with open_decision_point(ledger, new=not dry_run) as point:
        today = datetime.now(UTC).date()
        content = load_import_files(files, ImportContext(point.policy, today, table, options))
        _ensure_options_apply(options, content)
        if dry_run:
            _print_preview(_preview(point, content.releases, by), content.releases, format_)
            return 0
        imported, recorded = _import(point, content.releases, because, by)
        exceeded = [status for status in point.budgets() if not status.holds]
    if format_ == "json":
        print_json(
            {
                "imported": imported,
                "already-recorded": recorded,
                "exceeded": [status.as_json() for status in exceeded],
            }
        )
    else:
        _print_import(imported, recorded, exceeded)
    return 0


def _labels(label_arguments: tuple[str, ...]) -> dict[str, str]:
    pairs = [label.partition("=") for label in label_arguments]
    if not all(name and value for name, _, value in pairs):
        raise click.UsageError("--label must have the form name=value")
    return {name: value for name, _, value in pairs}


def _ensure_options_apply(options: RegistryImportOptions, content: ImportContent) -> None:
    if options != RegistryImportOptions() and not content.has_registry_entries:
        names = "--unit, --relation, --times and --label"
        raise click.UsageError(f"{names} apply only to registry entries, and FILES has none")


def _days(past: Sequence[PastRelease]) -> dict[str, str]:
    return {item.release.id: item.released for item in past if item.released is not None}


def _import(
    point: DecisionPoint, past: Sequence[PastRelease], because: str, by: str
) -> tuple[dict[str, int], dict[str, int]]:
    """Import releases; return the record numbers of new ones, and of those already recorded."""
    last = point.head.sequence
    releases = [item.release for item in past]
    numbers = point.import_many(releases, because, by, released=_days(past))
    named = {release.id: number for release, number in zip(releases, numbers, strict=True)}
    return (
        {name: number for name, number in named.items() if number > last},
        {name: number for name, number in named.items() if number <= last},
    )


def _preview(point: DecisionPoint, past: Sequence[PastRelease], by: str) -> ImportPreview:
    return point.preview_import([item.release for item in past], by, released=_days(past))


def _print_import(
    imported: Mapping[str, int], recorded: Mapping[str, int], exceeded: Sequence[RuleStatus]
) -> None:
    if imported:
        print_note(f"imported {_names(imported)}")
    if recorded:
        print_note(f"already recorded, and not charged again: {_names(recorded)}")
    if not imported and not recorded:
        print_note("imported nothing: the files have no release")
    for status in exceeded:
        print_note(f"now exceeded: {status.rule.name}  unit {status.rule.unit}")


def _names(releases: Iterable[str]) -> str:
    names = list(releases)
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _print_preview(preview: ImportPreview, past: Sequence[PastRelease], format_: str) -> None:
    days = _days(past)
    if format_ == "json":
        print_json(
            {
                "would-import": {release: days.get(release) for release in preview.new},
                "already-recorded": dict(preview.recorded),
                "charged": [
                    {"before": before.as_json(), "after": after.as_json()}
                    for before, after in preview.charged
                ],
                "would-exceed": [status.as_json() for status in preview.new_conflicts],
            }
        )
        return
    authors = {item.release.id: item.release.by for item in past}
    for release in preview.new:
        click.echo(f"would import {release}  {days.get(release, 'no date')}  {authors[release]}")
    for release, number in preview.recorded.items():
        click.echo(f"already recorded {release} as record {number}")
    ranked = sorted(preview.charged, key=lambda pair: rank_by_use(pair[1]))
    for before, after in ranked[:_MAX_RULES]:
        click.echo(_charge_text(before, after))
    if len(ranked) > _MAX_RULES:
        click.echo(f"… and {len(ranked) - _MAX_RULES} more rules")
    count = len(preview.new_conflicts)
    print_note(f"dry run: nothing was written; rules that would become exceeded: {count}")


def _charge_text(before: RuleStatus, after: RuleStatus) -> str:
    budget = budget_to_json(after.rule.budget)
    spent = f"{format_loss(before.spent, budget)} → {format_loss(after.spent, budget)}"
    limit = f"{format_budget(after.rule.budget)}{location_text(after.location)}"
    mark = "" if after.holds else "  exceeded"
    return f"{after.rule.name}  {after.rule.unit}  {spent} of {limit}{mark}"
