"""Diagnostics: collection and printed form."""

from __future__ import annotations

from dpolicy.text.diagnostics import Diagnostic, DiagnosticCollector
from dpolicy.text.yaml_reader import Source, Span


def test_a_repeated_diagnostic_is_kept_once() -> None:
    diagnostics = DiagnosticCollector()
    span = Span(Source("a", "x"), 1, 1, 1, 2)
    diagnostics.report("P001", "m", span)
    diagnostics.report("P001", "m", span)
    assert len(diagnostics.sorted_diagnostics) == 1


def test_the_printed_form_has_no_control_characters() -> None:
    span = Span(Source("a", 'key: "\x1b[31mred\x1b[0m"\tx'), 1, 1, 1, 4)
    text = str(Diagnostic("P006", "no key `\x1b[2J\r`", span, "\x07"))
    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_long_line_is_clipped_around_the_caret() -> None:
    span = Span(Source("a", "x" * 5000 + "WRONG" + "y" * 5000), 1, 5001, 1, 5006)
    _, _, source, caret = str(Diagnostic("P001", "m", span)).split("\n")
    assert len(source) < 130
    start = caret.index("^")
    assert source[start : start + 5] == "WRONG"
