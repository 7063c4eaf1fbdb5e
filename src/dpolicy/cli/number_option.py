"""Numbers on the command line → exact fractions, by the same rules as numbers in a text."""

from __future__ import annotations

from fractions import Fraction

import click

from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.yaml_reader import Source, read_nodes


def parse_decimal(text: str, option: str) -> Fraction:
    """The exact value of a number that was given as an option."""
    found = DiagnosticCollector()
    node = read_nodes(Source(option, text.strip()), found.report)
    value = INVALID if node is None else NumberShape().read(node, found.report)
    if not isinstance(value, Fraction) or found.errors:
        raise click.UsageError(f"{option}: `{text}` is not a number")
    return value
