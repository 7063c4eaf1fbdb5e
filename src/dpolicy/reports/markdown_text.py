"""Markdown of a document."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpolicy.reports.document import Blank, Block, Document, DocumentTable, Facts, Note, Paragraph

#: Characters that Markdown or HTML could read as markup.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")

#: Text that a renderer would turn into a link.
_LINK = re.compile(r"(https?)://|(www)\.", re.IGNORECASE)


def render_markdown(document: Document) -> str:
    """Return a document as Markdown; no text of the ledger is read as markup."""
    parts = [f"# {_escape(document.title)}", _escape(document.subtitle)]
    for section in document.sections:
        parts.append(f"{'#' * section.level} {_escape(section.heading)}")
        parts += ["\n".join(_render(block)) for block in section.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _render(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text=text, is_warning=is_warning):
            yield f"**{_escape(text)}**" if is_warning else _escape(text)
        case Note(text=text):
            yield f"*{_escape(text)}*"
        case Blank(question=question):
            yield f"> **To be filled in:** {_escape(question)}"
            yield ">"
            yield "> ……………………………………………………………………"
        case Facts(facts=facts):
            yield from (f"- **{_escape(name)}:** {_escape(text)}" for name, text in facts.items())
        case DocumentTable():
            yield from _render_table(block)


def _render_table(table: DocumentTable) -> Iterator[str]:
    if table.title:
        yield f"**{_escape(table.title)}**"
        yield ""
    if not table.rows:
        yield _escape(table.empty)
        return
    yield _row([column.title for column in table.columns])
    yield "|" + "|".join("--:" if column.is_number else "---" for column in table.columns) + "|"
    yield from map(_row, table.texts())


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(text: str) -> str:
    one_line = " ".join(text.split())
    linkless = _LINK.sub(lambda m: f"{m[1]}:\u200b//" if m[1] else f"{m[2]}\u200b.", one_line)
    return _MARKUP.sub(r"\\\1", linkless)
