"""Choice of the kernel: the compiled one if it is installed, else the one in NumPy.

Both give the same results. The environment variable `DPOLICY_KERNEL` with the value `numpy` selects
NumPy; with the value `compiled`, a missing compiled kernel is an error.
`KERNEL_NAME` is the name of the kernel in use.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from dpolicy.balances.kernel import numpy_kernel

if TYPE_CHECKING:
    from dpolicy.balances.kernel.numpy_kernel import (
        BudgetEpsilon,
        EpsilonCurve,
        GridRows,
        RuleRows,
        TightCell,
        TightRule,
    )

__all__ = [
    "KERNEL_NAME",
    "BudgetEpsilon",
    "EpsilonCurve",
    "GridRows",
    "RuleRows",
    "TightCell",
    "TightRule",
    "load_compiled_kernel",
]


def load_compiled_kernel() -> ModuleType | None:
    """Return the compiled kernel; None if it is not installed, or has another version."""
    try:
        compiled = import_module("dpolicy.balances.kernel.compiled_kernel")
    except ImportError:
        return None
    is_current: bool = getattr(compiled, "KERNEL_VERSION", None) == numpy_kernel.KERNEL_VERSION
    return compiled if is_current else None


def _choose_kernel() -> ModuleType:
    choice = os.environ.get("DPOLICY_KERNEL")
    compiled = None if choice == "numpy" else load_compiled_kernel()
    if compiled is None and choice == "compiled":
        raise ImportError("DPOLICY_KERNEL is compiled, but no current compiled kernel is installed")
    return compiled or numpy_kernel


_kernel = _choose_kernel()

#: Name of the kernel in use.
KERNEL_NAME: Literal["compiled", "numpy"] = "numpy" if _kernel is numpy_kernel else "compiled"

if not TYPE_CHECKING:
    BudgetEpsilon = _kernel.BudgetEpsilon
    EpsilonCurve = _kernel.EpsilonCurve
    GridRows = _kernel.GridRows
    RuleRows = _kernel.RuleRows
    TightCell = numpy_kernel.TightCell
    TightRule = numpy_kernel.TightRule
