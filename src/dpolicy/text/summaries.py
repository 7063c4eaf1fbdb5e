"""Summaries of objects for shells and notebooks: one line, a text table, or an HTML table.

Names in policies and releases are text of others: HTML is escaped, and a line has no control
characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

#: Largest number of characters of a one-line summary.
MAX_LENGTH = 160

#: Largest number of rows of a table; a further line counts the others.
MAX_ROWS = 25


def one_line(subject: object, *parts: str) -> str:
    """Return the class and the parts of an object in one short line; empty parts are left out."""
    text = ", ".join(part for part in parts if part)
    printable = "".join(c if c.isprintable() else "�" for c in text)
    room = MAX_LENGTH - len(type(subject).__name__)
    clipped = printable if len(printable) <= room else f"{printable[: room - 1]}…"
    return f"<{type(subject).__name__} {clipped}>".replace(" >", ">")


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many there are beyond them."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns; a column without any text is left out."""
    printed = [header, *(tuple(map(_printable, row)) for row in rows[:MAX_ROWS])]
    columns = [
        [row[number] for row in printed]
        for number in range(len(header))
        if any(row[number] for row in rows)
    ]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]
    return "\n".join([*lines, *_rest(len(rows))])


def html_line(text: str) -> str:
    """Return a text as one escaped line of HTML."""
    return f"<code>{escape(text)}</code>"


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an escaped table."""
    body = "".join(_html_row("td", row) for row in rows[:MAX_ROWS])
    rest = "".join(f"<p>{escape(line)}</p>" for line in _rest(len(rows)))
    head = f"<caption>{escape(caption)}</caption><thead>{_html_row('th', header)}</thead>"
    return f"<table>{head}<tbody>{body}</tbody></table>{rest}"


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _rest(count: int) -> list[str]:
    return [f"… and {count - MAX_ROWS} more rows"] if count > MAX_ROWS else []


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)
