"""A mistake → what a person needs to mend it: code, place, source line, caret and help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpolicy.errors import PolicyRejected
from dpolicy.text.yaml_reader import Span

#: More errors than this nobody mends in one go, and a bomb of mistakes must not cost minutes.
MAX_ERRORS = 100


class Severity(StrEnum):
    """An error keeps a policy from being used; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in a text. Codes from P100 on are warnings (docs/diagnostics.md)."""

    code: str
    message: str
    span: Span
    help: str | None = None

    @property
    def severity(self) -> Severity:
        """Whether this keeps the policy from being used."""
        return Severity.WARNING if self.code.startswith("P1") else Severity.ERROR

    def __str__(self) -> str:
        head = f"{self.span}: {self.severity} {self.code}: {_printable(self.message)}"
        number = str(self.span.line)
        gutter = " " * len(number)
        line = self.span.source.line(self.span.line)
        text, start, width = _window(line, self.span)
        shown = [head]
        if text.strip():
            caret = " " * start + "^" * width
            shown += [f"{gutter} |", f"{number} | {_printable(text)}", f"{gutter} | {caret}"]
        if self.help:
            shown.append(f"help: {_printable(self.help)}")
        return "\n".join(shown)

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "message": self.message,
            "file": self.span.source.name,
            "line": self.span.line,
            "column": self.span.column,
            "help": self.help,
        }


def _printable(text: str) -> str:
    """A text that does nothing to a terminal but be seen."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def _window(line: str, span: Span, most: int = 120) -> tuple[str, int, int]:
    """The part of a line to print, where the caret starts in it, and how wide it is."""
    line = line.replace("\t", " ")
    end = span.end_column if span.end_line == span.line else len(line) + 1
    start = min(span.column - 1, len(line))
    width = max(1, min(end - 1, len(line)) - start)
    left = max(0, start - most // 2) if len(line) > most else 0
    text = line[left : left + most]
    return text, start - left, max(1, min(width, most - (start - left)))


class DiagnosticCollector:
    """Collects diagnostics while a text is read: no stage stops at the first mistake."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Diagnostic] = {}
        self._errors: list[Diagnostic] = []

    def report(self, code: str, message: str, span: Span, help: str | None = None) -> None:
        """Note one finding; the same one twice is one. Past `MAX_ERRORS` the text is rejected."""
        key = (code, message, span.source.name, span.line, span.column)
        if key in self._found:
            return
        self._found[key] = diagnostic = Diagnostic(code, message, span, help)
        if diagnostic.severity is Severity.ERROR:
            self._errors.append(diagnostic)
        if len(self._errors) > MAX_ERRORS:
            shown = f"there are more than {MAX_ERRORS} errors; the rest is not told"
            raise PolicyRejected((*self.sorted_diagnostics, Diagnostic("P002", shown, span)))

    @property
    def sorted_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything found, by place."""
        return tuple(
            sorted(
                self._found.values(),
                key=lambda d: (d.span.source.name, d.span.line, d.span.column, d.code),
            )
        )

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What keeps the text from being used, in the order it was found."""
        return tuple(self._errors)
