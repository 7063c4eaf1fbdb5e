"""Diagnostics for texts that are not valid YAML: position, message and suggested fix."""

from __future__ import annotations

import re
from typing import Any

import yaml

from dpolicy.text.spans import Report, Source, Span, line_and_column

#: Bytes that are not UTF-8, line breaks that editors do not display, and bidirectional controls.
_HIDDEN = re.compile("[\ud800-\udfff\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: Suggested fixes for the most frequent errors of the YAML parser, by the start of their message.
_REMEDIES = {
    "mapping values are not allowed": (
        "indent this line like the lines around it, or quote text that contains `: `"
    ),
    "could not find expected ':'": "write `key: value`, with a space after the colon",
    "found unexpected ':'": "put a space after the colon, or quote the text",
    "did not find expected key": "indent this line like the lines around it",
    "did not find expected '-'": "indent this line like the lines around it, or start it with `- `",
    "found character that cannot start": "quote the text",
}


def report_syntax(source: Source, error: yaml.YAMLError, report: Report) -> None:
    """Report an error of the YAML parser as P001, with a suggested fix where one is known."""
    mark: Any = getattr(error, "problem_mark", None)
    context: Any = getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else _locate_character(source, error)
    while line > 1 and not source.line(line).strip():  # at the end of the file: use the last text
        line, column = line - 1, len(source.line(line - 1)) + 1
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML")
    help_ = next((h for start, h in _REMEDIES.items() if problem.startswith(start)), None)
    opening = source.line(context.line + 1)[context.column : context.column + 1] if context else ""
    if source.line(line)[column - 1 : column] == "\t":
        problem, help_ = "a tab is not allowed as indentation", "indent with spaces"
    elif opening and opening in "{[\"'":
        problem = f"{problem} after `{opening}`"
        help_ = f"close the `{opening}` in line {context.line + 1}, column {context.column + 1}"
    message = re.sub(r"'([^']+)'", r"`\1`", problem)
    report("P001", message, Span(source, line, column, line, column + 1), help_)


def _locate_character(source: Source, error: yaml.YAMLError) -> tuple[int, int]:
    """Return the line and column of a character that YAML does not allow."""
    return line_and_column(source, getattr(error, "position", 0) or 0)


def report_hidden_character(source: Source, report: Report) -> bool:
    """Report the first invisible or undecodable character; return whether there is one."""
    match = _HIDDEN.search(source.text)
    if match is None:
        return False
    line, column = line_and_column(source, match.start())
    code = ord(match[0])
    span = Span(source, line, column, line, column + 1)
    if 0xDC80 <= code <= 0xDCFF:  # the surrogate escape of a byte that is not UTF-8
        report(
            "P001", f"the byte {code - 0xDC00:#04x} is not UTF-8", span, "save the file as UTF-8"
        )
    else:
        message = f"the character U+{code:04X} makes the text look different from its content"
        report("P001", message, span, "remove it; inside quotes, write it as an escape")
    return True
