"""What diffprivlib checks before it computes → a release, reserved there and committed when spent.

Its functions and models check a loss, read the data, draw the noise and only then spend; some end
in between, depending on the data. Here the check reserves, so a denial comes first and whatever
began is charged. What it warns of as a leak is an error: nobody has stated what it costs.
"""

from __future__ import annotations

from threading import local
from typing import NoReturn

from diffprivlib import BudgetAccountant
from diffprivlib.utils import PrivacyLeakWarning

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import round_loss_up, round_up
from dpolicy.integrations.gate import Gate, GatedRun


class _Own(local):
    """What one thread has reserved and not yet spent."""

    run: GatedRun | None = None
    requested_loss: tuple[float, float] | None = None
    spending = False


class GatedDiffprivlibAccountant(BudgetAccountant):  # type: ignore[misc]
    """An accountant that asks the policy: pass it as `accountant`, or work `with` it.

    diffprivlib knows of no unit and has no relation of its own, so the gate must say both.
    """

    def __init__(self, gate: Gate, name: str = "diffprivlib") -> None:
        if gate.unit is None or gate.relation is None:
            raise OperationRejected("say the gate's `unit` and `relation`: diffprivlib has neither")
        self._gate = gate
        self._name = name
        self._own = _Own()
        super().__init__()

    def check(self, epsilon: float, delta: float) -> bool:
        """Reserve a loss, or raise `Denied`; what was reserved before has ended and is charged."""
        if self._own.spending:  # spending checks again, and has been reserved
            return True
        super().check(epsilon, delta)
        self._end()
        said = {"kind": "declared", "epsilon": round_loss_up(epsilon)}
        mechanism = {**said, "delta": round_up(delta)} if delta else said
        self._own.run = self._gate.reserve(self._name, self._gate.mechanism_fields(mechanism))
        self._own.requested_loss = (epsilon, delta)
        return True

    def spend(self, epsilon: float, delta: float) -> GatedDiffprivlibAccountant:
        """Commit what was reserved for this loss; reserve it first if nothing was."""
        if self._own.run is None or self._own.requested_loss != (epsilon, delta):
            self.check(epsilon, delta)
        self._own.spending = True
        try:
            super().spend(epsilon, delta)
        finally:
            self._own.spending = False
        self._end()
        return self

    def __enter__(self) -> GatedDiffprivlibAccountant:
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        super().__exit__(*error)

    def __deepcopy__(self, memo: object) -> GatedDiffprivlibAccountant:
        """Itself: scikit-learn copies estimators with their accountant, and all of them pay."""
        return self

    def __reduce__(self) -> NoReturn:
        raise OperationRejected("a gate cannot go to another process; help: n_jobs=1, or threads")

    def _end(self) -> None:
        run, self._own.run = self._own.run, None
        if run is not None:
            run.commit()


def _raised(self: PrivacyLeakWarning, *said: object) -> None:
    """Bounds and the like that are taken from the data are a release that nobody has charged."""
    Warning.__init__(self, *said)
    raise self


# A filter would not do: whoever ignores warnings replaces it, and tools warn before they check.
PrivacyLeakWarning.__init__ = _raised
