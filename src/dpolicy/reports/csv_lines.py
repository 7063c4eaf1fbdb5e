"""CSV of a document: one line for each fact and for each cell of a table.

The columns are section, table, row, column, value and text: the value is the number itself, and the
text is what the other formats print.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from dpolicy.reports.document import Document, DocumentTable, Facts, Section

COLUMNS = ("section", "table", "row", "column", "value", "text")

#: First characters with which a spreadsheet program would run a text as a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render_csv(document: Document) -> str:
    """Return the facts and tables of a document as CSV; texts and blanks are left out."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for section in document.sections:
        writer.writerows(map(_plain, _lines(section)))
    return stream.getvalue()


def _lines(section: Section) -> Iterator[tuple[object, ...]]:
    for block in section.blocks:
        if isinstance(block, Facts):
            for name, text in block.facts.items():
                yield section.heading, "", "", name, text, text
        elif isinstance(block, DocumentTable):
            for number, (row, texts) in enumerate(zip(block.rows, block.texts(), strict=True), 1):
                for column, cell, text in zip(block.columns, row, texts, strict=True):
                    value = "" if cell is None else cell
                    yield section.heading, block.title, number, column.title, value, text


def _plain(cells: tuple[object, ...]) -> list[object]:
    return [
        f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
        for cell in cells
    ]
