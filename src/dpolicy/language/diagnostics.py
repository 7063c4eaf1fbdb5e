"""A mistake → what a person needs to mend it: code, place, source line, caret and help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from dpolicy.language.source import Span


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
        head = f"{self.span}: {self.severity} {self.code}: {self.message}"
        number = str(self.span.line)
        gutter = " " * len(number)
        line = self.span.source.line(self.span.line)
        text, start, width = _window(line, self.span)
        shown = [head]
        if text.strip():
            caret = " " * start + "^" * width
            shown += [f"{gutter} |", f"{number} | {text}", f"{gutter} | {caret}"]
        if self.help:
            shown.append(f"help: {self.help}")
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


def _window(line: str, span: Span, most: int = 120) -> tuple[str, int, int]:
    """The part of a line to print, where the caret starts in it, and how wide it is."""
    line = line.replace("\t", " ")
    end = span.end_column if span.end_line == span.line else len(line) + 1
    start = min(span.column - 1, len(line))
    width = max(1, min(end - 1, len(line)) - start)
    left = max(0, start - most // 2) if len(line) > most else 0
    text = line[left : left + most]
    return text, start - left, max(1, min(width, most - (start - left)))


class Findings:
    """Collects diagnostics while a text is read: no stage stops at the first mistake."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Diagnostic] = {}

    def __call__(self, code: str, message: str, span: Span, help_: str | None = None) -> None:
        """Note one finding; the same one twice is one."""
        key = (code, message, span.source.name, span.line, span.column)
        self._found.setdefault(key, Diagnostic(code, message, span, help_))

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        """Everything found, by place."""
        return tuple(
            sorted(
                self._found.values(),
                key=lambda d: (d.span.source.name, d.span.line, d.span.column, d.code),
            )
        )

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What keeps the text from being used."""
        return tuple(d for d in self.all if d.severity is Severity.ERROR)


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean …?`, or what there is to choose from where that is short."""
    names = sorted(set(known))
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if 0 < len(names) <= 12:
        return "known: " + ", ".join(f"`{name}`" for name in names)
    return None
