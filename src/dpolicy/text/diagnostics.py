"""Diagnostics: code, message, position with source line and caret, and a suggested fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpolicy.errors import PolicyRejected
from dpolicy.text.yaml_reader import Span

#: Maximum number of errors in one report. It bounds the time that a hostile text can cost.
MAX_ERRORS = 100

#: Maximum length of a source line in a printed diagnostic.
_MAX_LINE_LENGTH = 120


class Severity(StrEnum):
    """Severity of a diagnostic: an error rejects the text, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Located message about a text. Codes from P100 on are warnings (docs/diagnostics.md)."""

    code: str
    message: str
    span: Span
    help: str | None = None

    @property
    def severity(self) -> Severity:
        """Severity, derived from the code."""
        return Severity.WARNING if self.code.startswith("P1") else Severity.ERROR

    def __str__(self) -> str:
        head = f"{self.span}: {self.severity} {self.code}: {replace_unprintable(self.message)}"
        number = str(self.span.line)
        gutter = " " * len(number)
        line = self.span.source.line(self.span.line)
        text, start, width = _clip_line(line, self.span)
        printed = [head]
        if text.strip():
            caret = " " * start + "^" * width
            source_line = f"{number} | {replace_unprintable(text)}"
            printed += [f"{gutter} |", source_line, f"{gutter} | {caret}"]
        if self.help:
            printed.append(f"help: {replace_unprintable(self.help)}")
        return "\n".join(printed)

    def as_json(self) -> dict[str, object]:
        """Return the diagnostic as a JSON object, without the source line."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "file": self.span.source.name,
            "line": self.span.line,
            "column": self.span.column,
            "help": self.help,
        }


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters, so that a text cannot control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def _clip_line(line: str, span: Span) -> tuple[str, int, int]:
    """Return the part of a line to print, and the start and width of the caret in that part."""
    line = line.replace("\t", " ")
    end = span.end_column if span.end_line == span.line else len(line) + 1
    start = min(span.column - 1, len(line))
    width = max(1, min(end - 1, len(line)) - start)
    first = max(0, start - _MAX_LINE_LENGTH // 2) if len(line) > _MAX_LINE_LENGTH else 0
    text = line[first : first + _MAX_LINE_LENGTH]
    return text, start - first, max(1, min(width, _MAX_LINE_LENGTH - (start - first)))


class DiagnosticCollector:
    """Collector of diagnostics. No stage stops at the first error of a text."""

    def __init__(self) -> None:
        self._diagnostics: dict[tuple[object, ...], Diagnostic] = {}
        self._errors: list[Diagnostic] = []

    def report(self, code: str, message: str, span: Span, help: str | None = None) -> None:
        """Add a diagnostic; ignore one with the same code, message and position.

        Raise `PolicyRejected` when there are more than `MAX_ERRORS` errors.
        """
        key = (code, message, span.source.name, span.line, span.column)
        if key in self._diagnostics:
            return
        self._diagnostics[key] = diagnostic = Diagnostic(code, message, span, help)
        if diagnostic.severity is Severity.ERROR:
            self._errors.append(diagnostic)
        if len(self._errors) > MAX_ERRORS:
            stopped = f"there are more than {MAX_ERRORS} errors; the remaining ones are not listed"
            raise PolicyRejected((*self.sorted_diagnostics, Diagnostic("P002", stopped, span)))

    @property
    def sorted_diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics in the order of their positions."""
        return tuple(
            sorted(
                self._diagnostics.values(),
                key=lambda d: (d.span.source.name, d.span.line, d.span.column, d.code),
            )
        )

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The errors, without warnings, in the order in which they were reported."""
        return tuple(self._errors)
