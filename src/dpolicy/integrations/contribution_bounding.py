"""Contribution bounding for records in a Polars or pandas DataFrame (theory 5.4).

Which records of a person are kept depends only on the records of that person: on their days, their
order and, if cells are limited, their cells. Rows without a person or a day are dropped, and so are
rows on days outside the limits. Polars is imported only when a Polars DataFrame is passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.integrations.contributions import Contributions
from dpolicy.privacy.units.calendar import Period, block_index

#: Number of the block of every day within the limits.
Blocks = dict[date, int]

#: Blocks of a limit, columns that split the blocks further, and maximum number of records.
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
    """Return the records that the limits keep.

    `entity`, `day`, `order` and `cells` are names of columns. Records are ordered by the columns
    `order`, then by row. To keep a random sample, order by a column of random numbers that were
    drawn independently for each record. `cells` are the columns of the histogram; they are required
    if the limits have `per_cell`, and not allowed otherwise.
    """
    if (limits.per_cell is None) is not (not cells):
        raise OperationRejected("give `cells` if and only if the limits have `per_cell`")
    steps: list[TruncationStep] = [
        (_number_blocks(limit.unit.period, limits.first, limits.last), [], limit.maximum)
        for limit in limits.limits
    ]
    if limits.per_cell is not None:
        steps.insert(0, (steps[0][0], list(cells), limits.per_cell))
    library = type(frame).__module__.split(".")[0]
    if library == "polars" and hasattr(frame, "get_column"):
        return _truncate_polars(frame, steps, entity, day, list(order))
    if library == "pandas" and hasattr(frame, "groupby"):
        return _truncate_pandas(frame, steps, entity, day, list(order))
    raise OperationRejected(
        f"`frame` must be a DataFrame of Polars or pandas, not a `{type(frame).__name__}`"
    )


def _number_blocks(period: Period | None, first: date, last: date) -> Blocks:
    days = range(first.toordinal(), last.toordinal() + 1)
    return {date.fromordinal(d): 0 if period is None else block_index(period, d) for d in days}


def _truncate_polars(
    frame: Any, steps: list[TruncationStep], entity: str, day: str, order: list[str]
) -> Any:
    import polars as pl

    if frame.schema[day] != pl.Date and not isinstance(frame.schema[day], pl.Datetime):
        raise OperationRejected(f"column `{day}` must hold dates, not `{frame.schema[day]}`")
    local_date = pl.col(day).dt.date()  # In the time zone of the column; a cast would use UTC.
    has_entity = pl.col(entity).is_not_null()
    if frame.schema[entity].is_float():
        has_entity &= pl.col(entity).is_not_nan()
    frame = frame.filter(has_entity & local_date.is_in(list(steps[0][0])))
    frame = frame.sort(order, maintain_order=True) if order else frame
    for blocks, cells, maximum in steps:
        block = local_date.replace_strict(
            list(blocks), list(blocks.values()), return_dtype=pl.Int64
        )
        position = pl.int_range(pl.len()).over(pl.col(entity), block, *cells)
        frame = frame.filter(position < maximum)
    return frame


def _truncate_pandas(
    frame: Any, steps: list[TruncationStep], entity: str, day: str, order: list[str]
) -> Any:
    if frame[day].dtype.kind != "M":
        raise OperationRejected(f"column `{day}` must hold dates, not `{frame[day].dtype}`")
    frame = frame[frame[entity].notna() & frame[day].dt.date.isin(list(steps[0][0]))]
    frame = frame.sort_values(order, kind="stable") if order else frame
    for blocks, cells, maximum in steps:
        block = frame[day].dt.date.map(blocks)
        groups = [frame[entity], block, *(frame[cell] for cell in cells)]
        position = frame.groupby(groups, sort=False, dropna=False).cumcount()
        frame = frame[position < maximum]
    return frame
