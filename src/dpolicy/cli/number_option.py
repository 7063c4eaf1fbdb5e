"""Numbers of command line options, read as exact fractions like numbers in a text."""

from __future__ import annotations

from fractions import Fraction

import click

from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import INVALID, NumberShape
from dpolicy.text.yaml_reader import Source, read_nodes


def parse_decimal(text: str, option: str) -> Fraction:
    """Return the exact value of a number. Raise `click.UsageError` if it is none."""
    diagnostics = DiagnosticCollector()
    node = read_nodes(Source(option, text.strip()), diagnostics.report)
    value = INVALID if node is None else NumberShape().read(node, diagnostics.report)
    if not isinstance(value, Fraction) or diagnostics.errors:
        raise click.UsageError(f"{option}: `{text}` is not a number")
    return value
