"""Types of the compiled kernel."""

import numpy as np
from numpy.typing import NDArray

from dpolicy.balances.kernel.numpy_kernel import TightCell, TightRule
from dpolicy.privacy.loss_arrays import LossArray

KERNEL_VERSION: int

class EpsilonCurve:
    def __init__(self, log_mass: float) -> None: ...
    def epsilon(self, variance: int) -> int: ...

class BudgetEpsilon:
    def __init__(self, curve: EpsilonCurve, limit: int, budget: int) -> None: ...
    def lower(self, displayed: int, variance: int) -> int: ...
    def lower_both(self, rule: TightRule | TightCell) -> tuple[int, int]: ...

class _Rows:
    def __init__(
        self,
        numbers: NDArray[np.intp],
        cost: LossArray,
        maximum: LossArray,
        require_all: NDArray[np.bool_],
        added: LossArray,
        is_displayed: NDArray[np.bool_],
        reserves: LossArray,
        positions: NDArray[np.intp] | None = None,
    ) -> None: ...

class RuleRows(_Rows):
    def decide(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule] | None: ...
    def find_exceeded(self, finite: LossArray, infinite: NDArray[np.int32]) -> list[TightRule]: ...
    def charge(self, finite: LossArray, infinite: NDArray[np.int32]) -> None: ...

class GridRows(_Rows):
    def decide(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell] | None: ...
    def find_exceeded(self, amounts: LossArray, cells: NDArray[np.intp]) -> list[TightCell]: ...
    def charge(self, amounts: LossArray, cells: NDArray[np.intp]) -> None: ...
