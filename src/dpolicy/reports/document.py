"""Documents: headings, texts, facts, tables and blanks as values, before any format.

A cell is a text, a number or None. A column states how its numbers are printed, so that all formats
print the same text, and JSON has the number itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dpolicy.privacy.number_text import format_down, format_share, format_up
from dpolicy.privacy.risk.risk_text import format_percent
from dpolicy.text.diagnostics import replace_unprintable

#: Longest text in a column that a page does not break.
MAX_SHORT_LENGTH = 26

#: Titles of columns with posteriors, with spaces that a line does not break.
BELIEF_TITLE = "A belief of 50\u00a0% grows to at most"
RARE_BELIEF_TITLE = "A belief of 1\u00a0% grows to at most"

#: Value of a cell; None if there is no bound or nothing to state.
Cell = str | int | float | None


class CellKind(StrEnum):
    """How the cells of a column are printed."""

    TEXT = "text"
    COUNT = "count"
    LOSS = "loss"
    DELTA = "delta"
    SHARE = "share"
    CHANCE = "chance"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """TableColumn of a table; `missing` is the text of a cell without a value.

    A column that `is_short` has dates, units or limits, which a page should not break.
    """

    title: str
    kind: CellKind = CellKind.TEXT
    missing: str = "–"
    is_short: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the cells are aligned as numbers."""
        return self.kind is not CellKind.TEXT

    def text(self, cell: Cell) -> str:
        """Return the text of a cell: losses and chances rounded up, δ as stated."""
        if cell is None:
            return self.missing
        if isinstance(cell, str):
            return replace_unprintable(cell)
        match self.kind:
            case CellKind.LOSS:
                return format_up(cell)
            case CellKind.DELTA:
                return format_down(cell)
            case CellKind.SHARE:
                return format_share(cell)
            case CellKind.CHANCE:
                return format_percent(cell)
            case _:
                return str(cell)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text of one or more sentences; a `warning` needs the attention of the reader."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Text in small print that states what the numbers beside it are."""

    text: str


@dataclass(frozen=True, slots=True)
class Blank:
    """Question that dpolicy cannot answer, with room for the answer of the officer."""

    question: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """Rows of cells. `empty` is the text instead of a table without rows."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = "None."
    title: str = ""

    def is_unbroken(self, position: int) -> bool:
        """Return whether no cell of a column needs a line break."""
        column = self.columns[position]
        cells = (column.text(row[position]) for row in self.rows)
        return column.is_short and all(len(text) <= MAX_SHORT_LENGTH for text in cells)

    def texts(self) -> list[list[str]]:
        """Return the printed cells."""
        return [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


Block = Paragraph | Note | Blank | Facts | DocumentTable


@dataclass(frozen=True, slots=True)
class Section:
    """Heading with blocks. A section of a lower level belongs to the one before it."""

    heading: str
    blocks: tuple[Block, ...]
    level: int = 2


@dataclass(frozen=True, slots=True)
class Document:
    """Report with a title, a line below it, and sections."""

    kind: str
    title: str
    subtitle: str
    sections: tuple[Section, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the document as JSON; the rows of a table have the numbers themselves."""
        return {
            "kind": self.kind,
            "title": self.title,
            "subtitle": self.subtitle,
            "sections": [
                {"heading": s.heading, "level": s.level, "blocks": [_to_json(b) for b in s.blocks]}
                for s in self.sections
            ],
        }


def _to_json(block: Block) -> dict[str, Any]:
    match block:
        case Paragraph(text=text, is_warning=is_warning):
            return {"warning" if is_warning else "text": text}
        case Note(text=text):
            return {"note": text}
        case Blank(question=question):
            return {"blank": question}
        case Facts(facts=facts):
            return {"facts": dict(facts)}
        case DocumentTable():
            names = [column.title for column in block.columns]
            rows = [dict(zip(names, row, strict=True)) for row in block.rows]
            return {"table": block.title, "columns": names, "rows": rows}
