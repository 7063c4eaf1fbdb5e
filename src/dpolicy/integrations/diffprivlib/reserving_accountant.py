"""Gate for diffprivlib: reserves a loss when diffprivlib checks it, commits it when it is spent.

Functions and models of diffprivlib check a loss, read the data, draw the noise and only then spend
the loss. Some return in between, depending on the data. The gate reserves at the check, so a denial
comes before the data is read, and every run that started is charged. A `PrivacyLeakWarning` of
diffprivlib becomes an error, because the cost of such a leak is unknown. A check by a function of
diffprivlib that no gated call allows is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import NoReturn

from diffprivlib import BudgetAccountant
from diffprivlib.utils import PrivacyLeakWarning

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import epsilon_delta_mechanism
from dpolicy.integrations.gate import Gate, GatedRun


class _ThreadState(local):
    """Loss that one thread has reserved and not yet spent, and whether it is in a gated call."""

    run: GatedRun | None = None
    requested_loss: tuple[float, float] | None = None
    spending = False
    in_call = False


class GatedDiffprivlibAccountant(BudgetAccountant):  # type: ignore[misc]
    """Accountant that reserves each loss at a decision point.

    Pass it as `accountant`, or use it in a `with` block. diffprivlib has no notion of a unit or of
    a neighbouring relation, so the gate must state both.
    """

    def __init__(self, gate: Gate, name: str = "diffprivlib") -> None:
        if gate.unit is None or gate.relation is None:
            raise OperationRejected(
                "the gate needs `unit` and `relation`, because diffprivlib has neither"
            )
        self._gate = gate
        self.relation = str(gate.relation)
        self._name = name
        self._thread_state = _ThreadState()
        super().__init__()

    @property
    def is_in_call(self) -> bool:
        """Whether this thread is inside a call that the gate has checked."""
        return self._thread_state.in_call

    @contextmanager
    def allow_call(self) -> Iterator[None]:
        """Internal: let diffprivlib reserve losses inside the block, for a checked call."""
        before, self._thread_state.in_call = self._thread_state.in_call, True
        try:
            yield
        finally:
            self._thread_state.in_call = before

    def check(self, epsilon: float, delta: float) -> bool:
        """Commit the previous reservation of this thread, then reserve a loss or raise `Denied`."""
        if self._thread_state.spending:  # `spend` calls `check`; the loss is already reserved.
            return True
        if not self._thread_state.in_call and _is_library_code(sys._getframe(1).f_globals):
            raise OperationRejected(
                "this function of diffprivlib is not checked by the gate; help: call it as "
                "`diffprivlib.tools.…` or `diffprivlib.models.…`, after importing the gate"
            )
        super().check(epsilon, delta)
        self._commit_run()
        mechanism = epsilon_delta_mechanism(epsilon, delta)
        run = self._gate.reserve(self._name, self._gate.mechanism_fields(mechanism))
        self._thread_state.run = run
        self._thread_state.requested_loss = (epsilon, delta)
        return True

    def spend(self, epsilon: float, delta: float) -> GatedDiffprivlibAccountant:
        """Commit the reservation of this loss; reserve the loss first if there is none."""
        state = self._thread_state
        if state.run is None or state.requested_loss != (epsilon, delta):
            self.check(epsilon, delta)
        state.spending = True
        try:
            super().spend(epsilon, delta)
        finally:
            state.spending = False
        self._commit_run()
        return self

    def __enter__(self) -> GatedDiffprivlibAccountant:
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._commit_run()
        super().__exit__(*error)

    def __deepcopy__(self, memo: object) -> GatedDiffprivlibAccountant:
        """Return itself: copies of an estimator, which scikit-learn makes, share the accountant."""
        return self

    def __reduce__(self) -> NoReturn:
        raise OperationRejected(
            "a gate cannot be sent to another process; help: use n_jobs=1 or threads"
        )

    def _commit_run(self) -> None:
        run, self._thread_state.run = self._thread_state.run, None
        if run is not None:
            run.commit()


def _is_library_code(module: dict[str, object]) -> bool:
    """Return whether code with these globals is part of diffprivlib."""
    return str(module.get("__name__", "")).partition(".")[0] == "diffprivlib"


def _raise_warning(self: PrivacyLeakWarning, *arguments: object) -> None:
    """Raise the warning: bounds that are taken from the data are an uncharged release."""
    Warning.__init__(self, *arguments)
    raise self


# A warning filter is not enough: code that ignores warnings replaces it, and some functions of
# diffprivlib warn before they check the loss.
PrivacyLeakWarning.__init__ = _raise_warning
