"""Sources, spans (positions in a source) and texts with a span."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Source:
    """Text with a name, usually the path of its file."""

    name: str
    text: str = field(repr=False)

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines without line breaks."""
        return _split_lines(self.text)

    def line(self, number: int) -> str:
        """Return a line, counted from 1; an empty text past the end."""
        return self.lines[number - 1] if number <= len(self.lines) else ""


@lru_cache(maxsize=4)  # printing hundreds of diagnostics reads the lines of one text each time
def _split_lines(text: str) -> tuple[str, ...]:
    return tuple(_BREAK.split(text))


class Span(NamedTuple):
    """Position in a source. Lines and columns count from 1; the end is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


class LocatedText(str):
    """Text with its position in a source. It compares and hashes like `str`."""

    span: Span

    def __new__(cls, text: str, span: Span) -> LocatedText:
        located = super().__new__(cls, text)
        located.span = span
        return located


#: Function that takes a diagnostic: code, message, position and help.
Report = Callable[[str, str, Span, str | None], None]


def line_and_column(source: Source, position: int) -> tuple[int, int]:
    """Return the line and column of the character at an offset."""
    before = _BREAK.split(source.text[:position])
    return len(before), len(before[-1]) + 1
