"""Table of lines of rules: what the rules of a line have in common, then one column per setting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from shutil import get_terminal_size
from typing import Any, TypeVar

import click

from dpolicy.privacy.budget import Budget, EpsilonDelta, format_budget
from dpolicy.privacy.number_text import format_down
from dpolicy.rules.groups.rule_lines import RuleLine, Settings

_Item = TypeVar("_Item")
_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Longest list of rules that is printed with one line per rule.
MAX_FLAT_LINES = 20

#: Characters in a line of output that does not go to a terminal.
DEFAULT_WIDTH = 120

_GAP = "  "

#: Characters of names that a note at the end of a line needs, unless its names are shorter.
_NAMES_WIDTH = 40


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: texts before the settings, texts by setting, texts after them, and a note.

    `names` end the note; those that do not fit are counted.
    """

    left: tuple[str, ...]
    cells: dict[Settings, str]
    right: tuple[str, ...]
    note: str = ""
    names: tuple[str, ...] = ()


def flat_option(command: _Command) -> _Command:
    """Add `--flat` to a command."""
    return click.option(
        "--flat",
        is_flag=True,
        help=f"One line or box per rule; lists of more than {MAX_FLAT_LINES} rules are grouped.",
    )(command)


def line_width() -> int:
    """Return the characters that fit in a line: those of the terminal, else `DEFAULT_WIDTH`."""
    if sys.stdout is not None and sys.stdout.isatty():
        return get_terminal_size((DEFAULT_WIDTH, 0)).columns
    return DEFAULT_WIDTH


def table_row(
    line: RuleLine[_Item],
    columns: Sequence[Settings],
    cell: Callable[[tuple[_Item, ...]], str],
    missing: str,
) -> TableRow:
    """Return the row of a line with its number of rules; `missing` is the text of an empty cell."""
    key = line.key
    left = (key.policy, key.risk, key.level, " × ".join(key.settings), ", ".join(line.units))
    cells = {
        settings: cell(line.cells[settings]) if settings in line.cells else missing
        for settings in columns
    }
    nouns = ("category", "categories") if key.level else ("attribute", "attributes")
    note = f"{len(line.members)} {nouns[len(line.members) != 1]}: " if line.members else ""
    return TableRow(left, cells, (str(len(line.items)),), note, line.members)


def fit_names(names: Sequence[str], room: int) -> str:
    """Return as many names as fit into `room` characters, at least one, and count the others."""
    likely = names[: max(room, 1)]  # a name and its comma have more than one character
    for count in range(len(likely), 0, -1):
        rest = f" and {len(names) - count} more" if count < len(names) else ""
        text = ", ".join(names[:count]) + rest
        if len(text) <= room or count == 1:
            return text
    return ""


#: Headings of the texts before the settings.
LEFT_HEADINGS = ("policy", "risk", "level", "setting", "unit")
#: Heading of the number of rules.
RIGHT_HEADINGS = ("rules",)


def fit_table(axes: int, build: Callable[[int, bool], list[str]]) -> list[str]:
    """Return the first layout of a table that fits into a line, or else the narrowest.

    `build` returns a layout: the settings of the first extensions, in the given number, are rows,
    and those of the others are columns; units with the same budgets share a line or not.
    """
    layouts = []
    for row_axes, join_units in product(range(axes + 1), (True, False)):
        lines = build(row_axes, join_units)
        width = max(map(len, lines))
        if width <= line_width():
            return lines
        layouts.append((width, lines))
    return min(layouts)[1]


def format_table(
    rows: Sequence[TableRow],
    columns: Sequence[Settings],
    left: Sequence[str] = LEFT_HEADINGS,
    right: Sequence[str] = RIGHT_HEADINGS,
) -> list[str]:
    """Return the lines of a table with its headings. A column without any text is left out."""
    height = max([1, *map(len, columns)])
    grid = [
        *_headings(columns, left, right, height),
        *((*row.left, *(row.cells[c] for c in columns), *row.right) for row in rows),
    ]
    used = [n for n in range(len(grid[0])) if any(cells[n] for cells in grid[height:])]
    widths = [max(len(cells[n]) for cells in grid) for n in used]
    lines = [_table_line([cells[n] for n in used], widths) for cells in grid]
    body = _add_notes(lines[height:], rows, widths[0] + len(_GAP), max(map(len, lines)))
    return [*lines[:height], *body]


def _add_notes(
    lines: Sequence[str], rows: Sequence[TableRow], indent: int, end: int
) -> Iterator[str]:
    """Yield the lines with the notes of their rows: after `end` if all fit, else below each line.

    A note fits with its first names.
    """
    room = line_width() - end - len(_GAP)
    needed = [len(row.note) + min(len(", ".join(row.names)), _NAMES_WIDTH) for row in rows]
    for line, row in zip(lines, rows, strict=True):
        if not row.note:
            yield line
        elif max(needed) <= room:
            yield f"{line:<{end}}{_GAP}{_note_text(row, room)}"
        else:
            yield line
            yield " " * indent + _note_text(row, line_width() - indent)


def _note_text(row: TableRow, room: int) -> str:
    text = row.note + fit_names(row.names, room - len(row.note))
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"


def _headings(
    columns: Sequence[Settings], left: Sequence[str], right: Sequence[str], height: int
) -> list[tuple[str, ...]]:
    """Return one line of settings for each extension; the last line has the other headings, too."""
    lines = []
    for level in range(height):
        names = [column[level] if level < len(column) else "" for column in columns]
        lines.append((*("" for _ in left), *names, *("" for _ in right)))
    names = [column[-1] if column else "budget" for column in columns]
    return [*lines[:-1], (*left, *names, *right)]


def _table_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
    return _GAP.join(padded).rstrip()


def blank_repeated_names(rows: Iterable[TableRow], count: int = 1) -> list[TableRow]:
    """Return the rows without those of the first `count` texts that the row above has, too."""
    result: list[TableRow] = []
    above: tuple[str, ...] = ()
    for row in rows:
        repeated = next((n for n in range(count) if row.left[: n + 1] != above[: n + 1]), count)
        result.append(replace(row, left=("",) * repeated + row.left[repeated:]))
        above = row.left
    return result


def common_delta(budgets: Iterable[Budget]) -> Fraction | None:
    """Return the δ of all (ε, δ) budgets; None if they differ or there is none."""
    deltas = {budget.delta for budget in budgets if isinstance(budget, EpsilonDelta)}
    return deltas.pop() if len(deltas) == 1 else None


def delta_heading(delta: Fraction | None) -> str:
    """Return the common δ as a part of a heading."""
    return f", δ {format_down(delta)}" if delta else ""


def short_budget(budget: Budget, delta: Fraction | None) -> str:
    """Return a budget as text, without δ if it is the common δ of the heading."""
    if isinstance(budget, EpsilonDelta) and budget.delta == delta:
        return f"ε {format_down(budget.epsilon)}"
    return format_budget(budget)
