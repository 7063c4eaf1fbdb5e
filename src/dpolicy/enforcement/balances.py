"""Charges → what every rule of a section has spent: added, and taken away again, exactly.

Infinite terms are counted beside the sum of the finite ones, so that voiding one of them gives back
what was there before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What a release costs the kept rules of a section: one row for each."""

    numbers: NDArray[np.intp]
    rows: Rows


@dataclass(frozen=True, slots=True, eq=False)
class Balances:
    """What was spent on every rule of a section, by its number."""

    finite: Rows
    infinite: NDArray[np.int32]

    @staticmethod
    def nothing(rules: int, width: int) -> Balances:
        """Before the first release."""
        shape = (rules, width)
        return Balances(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int32))

    def spent(self, numbers: NDArray[np.intp]) -> Rows:
        """The losses of some rules, one row for each."""
        found = self.finite[numbers]
        found[self.infinite[numbers] > 0] = INFINITE
        return found

    def add(self, charge: Charge, times: int) -> None:
        """Charge the rules for so many releases alike."""
        endless = charge.rows >= INFINITE
        much = charge.rows > INFINITE // times
        terms = np.where(endless, 0, np.where(much, INFINITE, charge.rows * times))
        self.finite[charge.numbers] = np.minimum(self.finite[charge.numbers] + terms, INFINITE)
        self.infinite[charge.numbers] += times * endless

    def take_away(self, charge: Charge, times: int) -> bool:
        """Undo charges; False, and nothing done, where a sum of finite terms became infinite."""
        before = self.finite[charge.numbers]
        if (before >= INFINITE).any():
            return False
        endless = charge.rows >= INFINITE
        self.finite[charge.numbers] = before - np.where(endless, 0, charge.rows * times)
        self.infinite[charge.numbers] -= times * endless
        return True
