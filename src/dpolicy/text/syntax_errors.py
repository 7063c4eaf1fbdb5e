"""What is wrong with a text that is not YAML at all → a message with its place and a remedy."""

from __future__ import annotations

import re
from typing import Any

import yaml

from dpolicy.text.spans import Report, Source, Span, line_and_column

#: Bytes that are not UTF-8, line breaks that editors do not show, and marks that turn text round.
_HIDDEN = re.compile("[\ud800-\udfff\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: What a person can do about the commonest complaints of the YAML reader, by how they begin.
_REMEDIES = {
    "mapping values are not allowed": "indent it as its neighbours, or quote text that holds `: `",
    "could not find expected ':'": "write `key: value`, with a space after the colon",
    "found unexpected ':'": "put a space after the colon, or quote the text",
    "did not find expected key": "indent it as its neighbours",
    "did not find expected '-'": "indent it as its neighbours, or begin it with `- `",
    "found character that cannot start": "quote the text",
}


def report_syntax(source: Source, error: yaml.YAMLError, report: Report) -> None:
    """Tell what the YAML reader stumbled over, where, and what can be done about it."""
    mark: Any = getattr(error, "problem_mark", None)
    began: Any = getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else _offending_character(source, error)
    while line > 1 and not source.line(line).strip():  # the end of the file: show what stands there
        line, column = line - 1, len(source.line(line - 1)) + 1
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML")
    help_ = next((h for start, h in _REMEDIES.items() if problem.startswith(start)), None)
    opening = source.line(began.line + 1)[began.column : began.column + 1] if began else ""
    if source.line(line)[column - 1 : column] == "\t":
        problem, help_ = "a tab cannot indent", "use spaces"
    elif opening and opening in "{[\"'":
        problem = f"{problem} after `{opening}`"
        help_ = f"the `{opening}` in line {began.line + 1}, column {began.column + 1} is not closed"
    shown = re.sub(r"'([^']+)'", r"`\1`", problem)
    report("P001", shown, Span(source, line, column, line, column + 1), help_)


def _offending_character(source: Source, error: yaml.YAMLError) -> tuple[int, int]:
    """The line and column of a character that YAML does not allow at all."""
    return line_and_column(source, getattr(error, "position", 0) or 0)


def report_hidden_character(source: Source, report: Report) -> bool:
    """Tell of the first character that no editor shows; whether there is one."""
    found = _HIDDEN.search(source.text)
    if found is None:
        return False
    line, column = line_and_column(source, found.start())
    code = ord(found[0])
    span = Span(source, line, column, line, column + 1)
    if 0xDC80 <= code <= 0xDCFF:  # how `read_source` keeps a byte that is not UTF-8
        report(
            "P001", f"the byte {code - 0xDC00:#04x} is not UTF-8", span, "save the file as UTF-8"
        )
    else:
        shown = f"the character U+{code:04X} makes a text look other than it reads"
        report("P001", shown, span, "remove it; inside quotes, write it as an escape")
    return True
