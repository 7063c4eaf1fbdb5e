"""`Budgets`: the statuses of rules as a list that prints as a table and turns into a frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeVar, overload

from dpolicy.privacy.number_text import format_down, format_share, format_up
from dpolicy.releases.decision import stated_delta
from dpolicy.releases.texts.amount_text import budget_amounts, budget_text, location_text, loss_text
from dpolicy.releases.texts.stated_delta import spent_delta_text
from dpolicy.text.summaries import html_table, one_line, text_table

if TYPE_CHECKING:
    import pandas
    import polars


class StatusRow(Protocol):
    """Status of one rule, from a decision point or from a server."""

    @property
    def name(self) -> str:
        """Name of the rule."""

    @property
    def unit(self) -> str:
        """Privacy unit of the rule."""

    @property
    def budget(self) -> Mapping[str, Any] | str:
        """The budget as JSON."""

    @property
    def spent(self) -> Mapping[str, float | None]:
        """The loss so far, in the notion of the budget."""

    @property
    def delta_limit(self) -> float | None:
        """The part of δ that is kept for stated δ; None if it is unlimited."""

    @property
    def holds(self) -> bool:
        """Whether the rule is satisfied."""

    @property
    def spenders(self) -> tuple[str, ...]:
        """The releases with the largest cost."""

    @property
    def location(self) -> Mapping[str, str | int]:
        """Where the rule is most used."""


Status = TypeVar("Status", bound=StatusRow)

_HEADER = ("used", "rule", "unit", "spent", "budget", "at", "")


class Budgets(list[Status]):
    """Statuses of rules. A shell or notebook prints them as a table, most used first."""

    def __repr__(self) -> str:
        return text_table(_HEADER, self._cells()) if self else "no rules"

    def _repr_html_(self) -> str:
        return html_table(f"Budgets of {len(self)} rules, most used first", _HEADER, self._cells())

    @overload
    def __getitem__(self, position: SupportsIndex) -> Status: ...
    @overload
    def __getitem__(self, position: slice) -> Budgets[Status]: ...
    def __getitem__(self, position: SupportsIndex | slice) -> Status | Budgets[Status]:
        if isinstance(position, slice):
            return Budgets(super().__getitem__(position))
        return super().__getitem__(position)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per rule, in the order of the list, with the columns of the frames.

        An infinite loss is `inf`. A column of another notion than that of the rule is None.
        """
        rows = [_status_row(status) for status in self]
        columns = dict.fromkeys(column for row in rows for column in row)
        return [{column: row.get(column) for column in columns} for row in rows]

    def to_pandas(self) -> pandas.DataFrame:
        """Return `rows()` as a pandas frame. Raise `ImportError` if pandas is not installed."""
        frame: pandas.DataFrame = _import_library("pandas").DataFrame(self.rows())
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return `rows()` as a Polars frame. Raise `ImportError` if Polars is not installed."""
        library = _import_library("polars")
        frame: polars.DataFrame = library.DataFrame(self.rows(), infer_schema_length=None)
        return frame

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                format_share(used_part(status)),
                status.name,
                status.unit,
                _spent_cell(status),
                _budget_cell(status),
                location_text(status.location),
                "" if status.holds else "exceeded",
            )
            for status in sorted(self, key=lambda status: (status.holds, -used_part(status)))
        ]


def status_line(status: StatusRow) -> str:
    """Return a status in one short line."""
    amounts = f"{loss_text(status.spent, status.budget)} of {budget_text(status.budget)}"
    delta = spent_delta_text(stated_delta(status.spent), status.delta_limit, status.budget)
    place = location_text(status.location)
    parts = (status.name, f"unit {status.unit}", place and f"at {place}", amounts)
    return one_line(status, *parts, "" if status.holds else "exceeded", delta or "")


def used_part(status: StatusRow) -> Fraction | float:
    """Return the used part of a budget, by the notion of which most is used; 0 if unlimited.

    Stated δ uses the part of δ that is kept for it.
    """
    parts: list[Fraction | float] = [Fraction(0)]
    limits = {**dict(budget_amounts(status.budget)), "delta": status.delta_limit}
    for notion, limit in limits.items():
        loss = status.spent.get(notion, 0)
        if limit is None:
            continue
        if loss is None or (limit == 0 and loss > 0):
            parts.append(math.inf)
        elif limit > 0:
            parts.append(Fraction(repr(loss)) / Fraction(repr(limit)))
    return max(parts)


def _spent_cell(status: StatusRow) -> str:
    """Return the text of a loss, with the sum of stated δ if there is any."""
    text, delta = loss_text(status.spent, status.budget), stated_delta(status.spent)
    return f"{text}, stated δ {format_up(delta)}" if delta else text


def _budget_cell(status: StatusRow) -> str:
    """Return the text of a budget, with the part of δ for stated δ if there is any."""
    text = budget_text(status.budget)
    if not status.spent.get("delta") or status.delta_limit is None:
        return text
    return f"{text}, stated δ {format_down(status.delta_limit)}"


def _status_row(status: StatusRow) -> dict[str, Any]:
    spent = {n: math.inf if loss is None else loss for n, loss in status.spent.items()}
    return {
        "rule": status.name,
        "unit": status.unit,
        "at": location_text(status.location),
        "used": float(used_part(status)),
        **{f"spent_{notion.replace(' ', '_')}": loss for notion, loss in spent.items()},
        **{f"budget_{n.replace(' ', '_')}": limit for n, limit in budget_amounts(status.budget)},
        "stated_delta_limit": status.delta_limit,
        "holds": status.holds,
        "spenders": ", ".join(status.spenders),
    }


def _import_library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        message = f"`to_{name}` needs {name}\nhelp: pip install 'dpolicy[{name}]'"
        raise ImportError(message) from None
