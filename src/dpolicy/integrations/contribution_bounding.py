"""A Polars or pandas frame of records → those that limits on contributions keep (theory 5.4).

Which records of a person are kept depends on that person's records alone, and on nothing but their
days, their order and, where cells are limited, their cells. Rows without a person or a day are left
out, as are those of other days. Neither library is imported before a frame of it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.integrations.contributions import Contributions
from dpolicy.privacy.units.calendar import Period, block_index

#: Every day of interest and the number of its block.
Blocks = dict[date, int]

#: The blocks of a limit, the columns that it further splits them by, and the most that are kept.
TruncationStep = tuple[Blocks, list[str], int]


def bound_contributions(
    frame: Any,
    limits: Contributions,
    *,
    entity: str,
    day: str,
    order: Sequence[str] = (),
    cells: Sequence[str] = (),
) -> Any:
    """The kept records. `entity` and `day` name columns, as do `order` and `cells`.

    Records are taken in the order of the columns `order`, then in that of the rows; a column of
    random numbers, drawn for each record by itself, makes it a sample. `cells` are the columns of
    the histogram: they are needed where the limits have a `per_cell`.
    """
    if (limits.per_cell is None) is not (not cells):
        raise OperationRejected("give `cells` where the limits have a `per_cell`, and only there")
    steps: list[TruncationStep] = [
        (_blocks(limit.unit.period, limits.first, limits.last), [], limit.most)
        for limit in limits.limits
    ]
    if limits.per_cell is not None:
        steps.insert(0, (steps[0][0], list(cells), limits.per_cell))
    library = type(frame).__module__.split(".")[0]
    if library == "polars" and hasattr(frame, "get_column"):
        return _keep_polars(frame, steps, entity, day, list(order))
    if library == "pandas" and hasattr(frame, "groupby"):
        return _keep_pandas(frame, steps, entity, day, list(order))
    raise OperationRejected(
        f"records are a DataFrame of Polars or pandas, not a `{type(frame).__name__}`"
    )


def _blocks(period: Period | None, first: date, last: date) -> Blocks:
    days = range(first.toordinal(), last.toordinal() + 1)
    return {date.fromordinal(d): 0 if period is None else block_index(period, d) for d in days}


def _keep_polars(
    frame: Any, steps: list[TruncationStep], entity: str, day: str, order: list[str]
) -> Any:
    import polars as pl

    if frame.schema[day] != pl.Date and not isinstance(frame.schema[day], pl.Datetime):
        raise OperationRejected(f"column `{day}` must hold dates, not `{frame.schema[day]}`")
    when = pl.col(day).dt.date()  # in the column's own zone; a cast would take the day in UTC
    person = pl.col(entity).is_not_null()
    if frame.schema[entity].is_float():
        person &= pl.col(entity).is_not_nan()
    frame = frame.filter(person & when.is_in(list(steps[0][0])))
    frame = frame.sort(order, maintain_order=True) if order else frame
    for blocks, cells, most in steps:
        block = when.replace_strict(list(blocks), list(blocks.values()), return_dtype=pl.Int64)
        place = pl.int_range(pl.len()).over(pl.col(entity), block, *cells)
        frame = frame.filter(place < most)
    return frame


def _keep_pandas(
    frame: Any, steps: list[TruncationStep], entity: str, day: str, order: list[str]
) -> Any:
    if frame[day].dtype.kind != "M":
        raise OperationRejected(f"column `{day}` must hold dates, not `{frame[day].dtype}`")
    frame = frame[frame[entity].notna() & frame[day].dt.date.isin(list(steps[0][0]))]
    frame = frame.sort_values(order, kind="stable") if order else frame
    for blocks, cells, most in steps:
        block = frame[day].dt.date.map(blocks)
        groups = [frame[entity], block, *(frame[cell] for cell in cells)]
        place = frame.groupby(groups, sort=False, dropna=False).cumcount()
        frame = frame[place < most]
    return frame
