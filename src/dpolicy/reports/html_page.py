"""HTML of a document: one self-contained page without scripts, to read and to print on A4."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.resources import files

from dpolicy.reports.document import (
    MAX_SHORT_LENGTH,
    Blank,
    Block,
    Cell,
    CellKind,
    Document,
    DocumentTable,
    Facts,
    Note,
    Paragraph,
    Section,
    TableColumn,
)


def render_html(document: Document) -> str:
    """Return a document as a page; every text is escaped, and nothing is loaded from elsewhere."""
    style = files("dpolicy.reports").joinpath("report.css").read_text("utf-8")
    sections = "\n".join(_section(section) for section in document.sections)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f'<body class="{escape(document.kind)}">\n<main>\n'
        f"<header><h1>{escape(document.title)}</h1>"
        f'<p class="subtitle">{escape(document.subtitle)}</p></header>\n'
        f"{sections}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join("".join(_render(block)) for block in section.blocks)
    level = section.level
    return f"<section>\n<h{level}>{escape(section.heading)}</h{level}>\n{blocks}\n</section>"


def _render(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text=text, is_warning=is_warning):
            yield (
                f'<p class="warning">{escape(text)}</p>' if is_warning else f"<p>{escape(text)}</p>"
            )
        case Note(text=text):
            yield f'<p class="note">{escape(text)}</p>'
        case Blank(question=question):
            yield f'<div class="blank"><p><strong>To be filled in:</strong> {escape(question)}</p>'
            yield "<span></span><span></span></div>"
        case Facts(facts=facts):
            yield "<dl>"
            for name, text in facts.items():
                yield f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
            yield "</dl>"
        case DocumentTable():
            yield from _render_table(block)


def _render_table(table: DocumentTable) -> Iterator[str]:
    if table.title:
        yield f"<h3>{escape(table.title)}</h3>"
    if not table.rows:
        yield f"<p>{escape(table.empty)}</p>"
        return
    classes = [_class(table, position) for position in range(len(table.columns))]
    yield "<table><thead><tr>"
    for column, class_ in zip(table.columns, classes, strict=True):
        yield f'<th scope="col"{class_}>{_break_long_words(column.title)}</th>'
    yield "</tr></thead><tbody>"
    for row, texts in zip(table.rows, table.texts(), strict=True):
        yield "<tr>"
        for column, class_, cell, text in zip(table.columns, classes, row, texts, strict=True):
            yield f"<td{class_}>{_bar(column, cell)}{escape(text)}</td>"
        yield "</tr>"
    yield "</tbody></table>"


def _break_long_words(title: str) -> str:
    """Return an escaped title; a word that is longer than a short cell may break anywhere."""
    return " ".join(
        f'<span class="long">{escape(word)}</span>'
        if len(word) > MAX_SHORT_LENGTH
        else escape(word)
        for word in title.split(" ")
    )


def _class(table: DocumentTable, position: int) -> str:
    if table.columns[position].is_number:
        return ' class="number"'
    return ' class="short"' if table.is_unbroken(position) else ""


def _bar(column: TableColumn, cell: Cell) -> str:
    """Return a bar for a share; a share above 1 fills it, in another colour."""
    if column.kind is not CellKind.SHARE or not isinstance(cell, int | float):
        return ""
    width = min(100.0, max(0.0, 100.0 * cell))
    kind = "bar over" if cell > 1 else "bar"
    return f'<span class="{kind}"><i style="width:{width:.1f}%"></i></span>'
