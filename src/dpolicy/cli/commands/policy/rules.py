"""`dpolicy rules`: print or draw the rules of a policy set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from dpolicy.cli.output.printing import format_option, print_diagnostics, print_note
from dpolicy.cli.output.rule_table import MAX_FLAT_LINES, flat_option
from dpolicy.cli.output.rule_text import ListedRule, flat_rules_text, grouped_rules_text
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.rules.hasse.diagram import hasse_svg, select_rules
from dpolicy.rules.hasse.group_diagram import MAX_SINGLE_BOXES, groups_svg
from dpolicy.rules.rule import rule_to_json


@click.command()
@click.argument("path", type=click.Path())
@click.option(
    "--all", "all_", is_flag=True, help="Also show pruned rules and the rule that implies each."
)
@flat_option
@click.option("--graph", type=click.Path(dir_okay=False), help="File for a Hasse diagram (SVG).")
@click.option("--unit", help="Show only rules of this privacy unit.")
@click.option("--policy", help="Show only rules of this base policy.")
@click.option("--each-release", is_flag=True, help="Draw the per-release rules.")
@format_option
def command(
    path: str,
    all_: bool,
    flat: bool,
    graph: str | None,
    unit: str | None,
    policy: str | None,
    each_release: bool,
    format_: str,
) -> int:
    """Print the rules of the policy set PATH that are enforced."""
    compiled = load_policy(path)
    _check_filters(compiled, unit, policy)
    if graph is not None:
        section = compiled.each_release if each_release else compiled.cumulative
        numbers = select_rules(section, unit, policy)
        is_flat = flat or all_ or len(numbers) <= MAX_SINGLE_BOXES
        drawing = hasse_svg(section, numbers) if is_flat else groups_svg(section, numbers)
        Path(graph).write_text(drawing, "utf-8")
        print_note(f"drew {graph}")
        return 0
    rules = _select(compiled, all_, unit, policy)
    if format_ == "json":
        _print_json(compiled, rules)
    else:
        print_diagnostics(compiled.warnings)
        _print_text(compiled, list(rules), flat=flat or all_)
    return 0


def _check_filters(compiled: CompiledPolicy, unit: str | None, policy: str | None) -> None:
    bases = [base for section in compiled.sections for base in section.rules.bases]
    if unit is not None and unit not in {base.unit for base in bases}:
        raise click.UsageError(f"no rule has the unit `{unit}`")
    if policy is not None and policy not in {base.policy for base in bases}:
        raise click.UsageError(f"unknown base policy `{policy}`")


def _select(
    compiled: CompiledPolicy, all_: bool, unit: str | None, policy: str | None
) -> Iterator[ListedRule]:
    for rule, witness in compiled.all_rules:
        if (
            (all_ or witness is None)
            and unit in (None, rule.unit)
            and policy in (None, rule.base.policy)
        ):
            yield rule, witness


def _print_json(compiled: CompiledPolicy, rules: Iterator[ListedRule]) -> None:
    """Print rule by rule, so that a million rules are never in memory together."""
    click.echo(
        f'{{"total": {compiled.rule_count}, "kept": {compiled.kept_count}, "rules": [', nl=False
    )
    for position, (rule, witness) in enumerate(rules):
        line = json.dumps(rule_to_json(rule, witness), ensure_ascii=False)
        click.echo((",\n" if position else "\n") + line, nl=False)
    click.echo("\n]}")


def _print_text(compiled: CompiledPolicy, rules: list[ListedRule], *, flat: bool) -> None:
    counts = f"{compiled.kept_count} of {compiled.rule_count} rules are enforced"
    if flat or len(rules) <= MAX_FLAT_LINES:
        lines = [counts, *flat_rules_text(rules)]
    else:
        kept = [rule for rule, _ in rules]
        lines = [
            f"{counts}; `--flat` prints one line per rule",
            *grouped_rules_text(compiled, kept),
        ]
    for line in lines:
        click.echo(line)
