"""Data of a gated call, read as finite numbers.

diffprivlib computes NaN from data with a NaN, converts other values with errors that depend on the
data, and sums small types with overflow. Each of these answers reveals a record with certainty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Value that replaces a missing value. diffprivlib then clips it to the bounds.
REPLACEMENT = 0.0


class NumberArray:
    """Array that is read when NumPy converts it, which is after the reservation.

    A value that is not a number counts as zero. Each number depends on its own value only, so the
    sensitivity of a function does not change.
    """

    def __init__(self, data: Any, *, finite: bool = False) -> None:
        self._data = data
        self._finite = finite

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        is_sparse = hasattr(self._data, "toarray")
        values = np.asarray(self._data.toarray() if is_sparse else self._data)
        if values.dtype.kind not in "biuf":
            parsed = [_parse_number(value) for value in values.ravel().tolist()]
            values = np.array(parsed, dtype=float).reshape(values.shape)
        numbers = values.astype(float)
        unusable = ~np.isfinite(numbers) if self._finite else np.isnan(numbers)
        return np.where(unusable, REPLACEMENT, numbers).astype(dtype or float)


def _parse_number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return REPLACEMENT
