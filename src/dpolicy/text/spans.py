"""Texts with names, places in them, and words that remember their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Source:
    """A named text."""

    name: str
    text: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines without their ends."""
        return _lines(self.text)

    def line(self, number: int) -> str:
        """One line, counted from 1."""
        return self.lines[number - 1] if number <= len(self.lines) else ""


@lru_cache(maxsize=4)  # a pure function; hundreds of diagnostics ask for lines of one text
def _lines(text: str) -> tuple[str, ...]:
    return tuple(_BREAK.split(text))


class Span(NamedTuple):
    """A place in a source: lines and columns count from 1, the end is exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


class LocatedText(str):
    """A text that remembers where it stands."""

    span: Span

    def __new__(cls, text: str, span: Span) -> LocatedText:
        word = super().__new__(cls, text)
        word.span = span
        return word


#: Called with a code, a message, the place, and help.
Report = Callable[[str, str, Span, str | None], None]


def line_and_column(source: Source, position: int) -> tuple[int, int]:
    """The line and column of a character of a text."""
    before = _BREAK.split(source.text[:position])
    return len(before), len(before[-1]) + 1
