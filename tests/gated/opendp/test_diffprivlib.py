"""The gate for diffprivlib with the real functions and models, and attempts to bypass it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest
from diffprivlib import BudgetAccountant, models, tools
from diffprivlib.utils import PrivacyLeakWarning
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.diffprivlib import GatedDiffprivlibAccountant
from dpolicy.integrations.gate import Gate
from dpolicy.pdp.decision_point import DecisionPoint

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, orders: []}
units: {user: {relation: replace}}
schema:
  attributes: {income: {risk: high}}
"""
USER = "  - {name: users, kind: custom, when: always, unit: user, budget: {epsilon: %s}}\n"
DATA = np.linspace(0, 1, 200)
FEATURES, CLASSES = np.column_stack([DATA, DATA[::-1]]), np.arange(200) % 2


class Watched:
    """Array that counts its conversions to NumPy, and can fail at the first."""

    def __init__(self, broken: bool = False) -> None:
        self.reads = 0
        self._broken = broken

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.reads += 1
        if self._broken:
            raise OSError("the disk is gone")
        return DATA


@pytest.fixture(autouse=True)
def restored_warnings() -> Iterator[None]:
    """Restore the warning filters after each test."""
    with warnings.catch_warnings():
        yield


def point_with(epsilon: str = "2") -> DecisionPoint:
    return started(USER % epsilon, head=HEAD)


def make_accountant(point: DecisionPoint) -> GatedDiffprivlibAccountant:
    return GatedDiffprivlibAccountant(
        Gate(point, unit="user", relation="replace", attributes=["income"])
    )


# Charges of allowed runs


def test_functions_are_charged() -> None:
    point = point_with()
    with make_accountant(point) as accountant:
        tools.mean(DATA, bounds=(0, 1), epsilon=0.5)
        tools.histogram(DATA, range=(0, 1), epsilon=0.25)
    assert statuses(point) == ["committed", "committed"]
    assert balance(point) == pytest.approx(0.75)
    assert accountant.total()[0] == pytest.approx(0.75)


def test_a_function_with_several_answers_is_charged_for_all() -> None:
    point = point_with()
    tools.quantile(
        DATA, [0.1, 0.5, 0.9], bounds=(0, 1), epsilon=0.9, accountant=make_accountant(point)
    )
    assert statuses(point) == ["committed"] * 3
    assert balance(point) == pytest.approx(0.9)


def test_models_are_charged() -> None:
    point = point_with()
    model = models.GaussianNB(epsilon=1.5, bounds=(0, 1), accountant=make_accountant(point))
    model.fit(FEATURES, CLASSES)
    assert statuses(point) == ["committed"]
    assert balance(point) == pytest.approx(1.5)


# No data is read before the reservation; data that was read is charged


def test_a_denied_function_reads_nothing() -> None:
    point, data = point_with("1"), Watched()
    with pytest.raises(Denied):
        tools.mean(data, bounds=(0, 1), epsilon=1.5, accountant=make_accountant(point))
    assert statuses(point) == ["denied"]
    assert data.reads == 0


def test_a_denied_model_is_not_fitted() -> None:
    """The accountant of diffprivlib would deny only after the fit."""
    point = point_with("1")
    model = models.GaussianNB(epsilon=1.5, bounds=(0, 1), accountant=make_accountant(point))
    with pytest.raises(Denied):
        model.fit(FEATURES, CLASSES)
    assert not hasattr(model, "theta_")


def test_a_crash_while_reading_stays_charged() -> None:
    point, data = point_with(), Watched(broken=True)
    with pytest.raises(OSError, match="disk"), make_accountant(point):
        tools.mean(data, bounds=(0, 1), epsilon=0.5)
    assert data.reads == 1
    assert statuses(point) == ["committed"]
    assert balance(point) == pytest.approx(0.5)


def test_the_run_after_a_crash_has_its_own_charge() -> None:
    point = point_with()
    accountant = make_accountant(point)
    with pytest.raises(OSError, match="disk"):
        tools.mean(Watched(broken=True), bounds=(0, 1), epsilon=0.5, accountant=accountant)
    assert statuses(point) == ["reserved"]  # a reservation counts as balance
    tools.mean(DATA, bounds=(0, 1), epsilon=0.5, accountant=accountant)
    assert balance(point) == pytest.approx(1)
    accountant.spend(0.5, 0)
    assert balance(point) == pytest.approx(1.5)


def test_an_answer_that_is_never_spent_is_charged() -> None:
    """diffprivlib returns NaN for data with a NaN, and spends nothing for this answer."""
    point, gap = point_with(), np.array([0.1, np.nan])
    plain = BudgetAccountant()
    assert np.isnan(tools.quantile(gap, 0.5, bounds=(0, 1), epsilon=0.5, accountant=plain))
    assert plain.total()[0] == 0
    with make_accountant(point):
        tools.quantile(gap, 0.5, bounds=(0, 1), epsilon=0.5)
    assert balance(point) == pytest.approx(0.5)


# Attempts to bypass the gate


def test_a_leak_is_an_error_even_if_warnings_are_ignored() -> None:
    point = point_with()
    accountant = make_accountant(point)
    for function in (tools.mean, tools.var, tools.sum, tools.median):
        warnings.filterwarnings("ignore")
        with pytest.raises(PrivacyLeakWarning):
            function(DATA, epsilon=0.1, accountant=accountant)
    assert balance(point) == 0


def test_threads_have_separate_reservations() -> None:
    """While one thread spends, the check of another still reserves."""
    point = point_with("1.5")
    accountant = make_accountant(point)
    accountant.check(1.0, 0.0)
    denied: list[Exception] = []

    def other() -> None:
        try:
            tools.mean(DATA, bounds=(0, 1), epsilon=1.0, accountant=accountant)
        except Denied as error:
            denied.append(error)

    accountant._thread_state.spending = True  # this thread is spending
    thread = Thread(target=other)
    thread.start()
    thread.join()
    assert denied


@pytest.mark.parametrize("leak", ["mean", "histogram", "model"])
def test_parameters_taken_from_the_data_are_refused(leak: str) -> None:
    point, data = point_with(), Watched()
    accountant = make_accountant(point)
    with pytest.raises(PrivacyLeakWarning):
        if leak == "mean":
            tools.mean(data, accountant=accountant)
        elif leak == "histogram":
            tools.histogram(data, accountant=accountant)
        else:
            models.GaussianNB(accountant=accountant).fit(FEATURES, CLASSES)
    assert data.reads == 0


def test_copies_of_a_model_are_charged() -> None:
    """Cross-validation copies the model and its accountant for each fold."""
    point = point_with("9")
    model = models.GaussianNB(epsilon=1, bounds=(0, 1), accountant=make_accountant(point))
    assert clone(model).accountant is model.accountant
    cross_val_score(model, FEATURES, CLASSES, cv=3)
    assert balance(point) == pytest.approx(3)
    with pytest.raises(OperationRejected, match="another process"):
        pickle.dumps(model)


def test_another_accountant_bypasses_the_gate() -> None:
    """A variables bypass, documented on the page: the caller can pass another accountant."""
    point = point_with()
    with make_accountant(point):
        tools.mean(DATA, bounds=(0, 1), epsilon=100, accountant=BudgetAccountant())
    assert not point.entries


def test_the_gate_must_state_unit_and_relation() -> None:
    for gate in (Gate(point_with(), unit="user"), Gate(point_with(), relation="replace")):
        with pytest.raises(OperationRejected, match="has neither"):
            GatedDiffprivlibAccountant(gate)


def test_a_relation_without_a_bound_for_the_policy_is_denied() -> None:
    """A loss under `replace` does not bound the loss under `add-remove`."""
    head = HEAD.replace("replace", "add-remove")
    point = started(USER % "2", head=head)
    with pytest.raises(Denied):
        tools.mean(DATA, bounds=(0, 1), epsilon=0.1, accountant=make_accountant(point))


def test_the_example_of_the_page() -> None:
    point = point_with()
    variables = run_example("diffprivlib", point=point, incomes=DATA)
    assert 0 <= variables["mean"] <= 1
    assert balance(point) == pytest.approx(0.5)
