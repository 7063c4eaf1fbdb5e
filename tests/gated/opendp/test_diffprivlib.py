"""diffprivlib behind the gate: the real functions and models, and what they leave out."""

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
    """An array that tells whether anybody has looked at its numbers, and may break when they do."""

    def __init__(self, broken: bool = False) -> None:
        self.reads = 0
        self._broken = broken

    def __array__(self, *_: Any, **__: Any) -> Any:
        self.reads += 1
        if self._broken:
            raise OSError("the disk is gone")
        return DATA


@pytest.fixture(autouse=True)
def own_warnings() -> Iterator[None]:
    """What a test ignores is ignored in that test only."""
    with warnings.catch_warnings():
        yield


def point_with(epsilon: str = "2") -> DecisionPoint:
    return started(USER % epsilon, head=HEAD)


def accountant_of(point: DecisionPoint) -> GatedDiffprivlibAccountant:
    return GatedDiffprivlibAccountant(
        Gate(point, unit="user", relation="replace", attributes=["income"])
    )


def spent(point: DecisionPoint) -> float | None:
    (found,) = point.budgets()
    return found.spent["epsilon"]


def statuses(point: DecisionPoint) -> list[str]:
    return [entry.status for entry in point.entries.values()]


# An allowed run charges the right cost


def test_functions_are_charged() -> None:
    point = point_with()
    with accountant_of(point) as accountant:
        tools.mean(DATA, bounds=(0, 1), epsilon=0.5)
        tools.histogram(DATA, range=(0, 1), epsilon=0.25)
    assert statuses(point) == ["committed", "committed"]
    assert spent(point) == pytest.approx(0.75)
    assert accountant.total()[0] == pytest.approx(0.75)


def test_functions_of_several_answers_are_charged_for_all() -> None:
    point = point_with()
    tools.quantile(
        DATA, [0.1, 0.5, 0.9], bounds=(0, 1), epsilon=0.9, accountant=accountant_of(point)
    )
    assert statuses(point) == ["committed"] * 3
    assert spent(point) == pytest.approx(0.9)


def test_models_are_charged() -> None:
    point = point_with()
    model = models.GaussianNB(epsilon=1.5, bounds=(0, 1), accountant=accountant_of(point))
    model.fit(FEATURES, CLASSES)
    assert statuses(point) == ["committed"]
    assert spent(point) == pytest.approx(1.5)


# Nothing is read before it is allowed, and what was read is charged


def test_a_denied_function_reads_nothing() -> None:
    point, data = point_with("1"), Watched()
    with pytest.raises(Denied):
        tools.mean(data, bounds=(0, 1), epsilon=1.5, accountant=accountant_of(point))
    assert statuses(point) == ["denied"]
    assert data.reads == 0


def test_a_denied_model_is_not_fitted() -> None:
    """With the library's own accountant the denial comes last, and the fit stays."""
    point = point_with("1")
    model = models.GaussianNB(epsilon=1.5, bounds=(0, 1), accountant=accountant_of(point))
    with pytest.raises(Denied):
        model.fit(FEATURES, CLASSES)
    assert not hasattr(model, "theta_")


def test_a_crash_while_reading_stays_charged() -> None:
    point, data = point_with(), Watched(broken=True)
    with pytest.raises(OSError, match="disk"), accountant_of(point):
        tools.mean(data, bounds=(0, 1), epsilon=0.5)
    assert data.reads == 1
    assert statuses(point) == ["committed"]
    assert spent(point) == pytest.approx(0.5)


def test_a_crash_is_not_paid_for_by_the_next_run() -> None:
    point = point_with()
    accountant = accountant_of(point)
    with pytest.raises(OSError, match="disk"):
        tools.mean(Watched(broken=True), bounds=(0, 1), epsilon=0.5, accountant=accountant)
    assert statuses(point) == ["reserved"]  # and so it counts, for good
    tools.mean(DATA, bounds=(0, 1), epsilon=0.5, accountant=accountant)
    assert spent(point) == pytest.approx(1)
    accountant.spend(0.5, 0)
    assert spent(point) == pytest.approx(1.5)


def test_an_answer_that_is_never_spent_is_charged() -> None:
    """A quantile of data with a gap says so and spends nothing: an answer for free."""
    point, gap = point_with(), np.array([0.1, np.nan])
    own = BudgetAccountant()
    assert np.isnan(tools.quantile(gap, 0.5, bounds=(0, 1), epsilon=0.5, accountant=own))
    assert own.total()[0] == 0
    with accountant_of(point):
        tools.quantile(gap, 0.5, bounds=(0, 1), epsilon=0.5)
    assert spent(point) == pytest.approx(0.5)


# Ways round


def test_ignoring_warnings_ignores_no_leak() -> None:
    point = point_with()
    accountant = accountant_of(point)
    for function in (tools.mean, tools.var, tools.sum, tools.median):
        warnings.filterwarnings("ignore")
        with pytest.raises(PrivacyLeakWarning):
            function(DATA, epsilon=0.1, accountant=accountant)
    assert spent(point) in (None, 0)


def test_threads_do_not_pay_for_each_other() -> None:
    """While one thread spends, the check of another still reserves."""
    point = point_with("1.5")
    accountant = accountant_of(point)
    accountant.check(1.0, 0.0)
    denied: list[Exception] = []

    def other() -> None:
        try:
            tools.mean(DATA, bounds=(0, 1), epsilon=1.0, accountant=accountant)
        except Denied as error:
            denied.append(error)

    accountant._own.spending = True  # in the midst of spending
    thread = Thread(target=other)
    thread.start()
    thread.join()
    assert denied


@pytest.mark.parametrize("leak", ["mean", "histogram", "model"])
def test_what_is_taken_from_the_data_is_refused(leak: str) -> None:
    point, data = point_with(), Watched()
    accountant = accountant_of(point)
    with pytest.raises(PrivacyLeakWarning):
        if leak == "mean":
            tools.mean(data, accountant=accountant)
        elif leak == "histogram":
            tools.histogram(data, accountant=accountant)
        else:
            models.GaussianNB(accountant=accountant).fit(FEATURES, CLASSES)
    assert data.reads == 0


def test_copies_pay_too() -> None:
    """Cross-validation copies a model with its accountant, one for each fold."""
    point = point_with("9")
    model = models.GaussianNB(epsilon=1, bounds=(0, 1), accountant=accountant_of(point))
    assert clone(model).accountant is model.accountant
    cross_val_score(model, FEATURES, CLASSES, cv=3)
    assert spent(point) == pytest.approx(3)
    with pytest.raises(OperationRejected, match="another process"):
        pickle.dumps(model)


def test_another_accountant_asks_nobody() -> None:
    """Open, and said so on the page: whoever calls chooses the accountant."""
    point = point_with()
    with accountant_of(point):
        tools.mean(DATA, bounds=(0, 1), epsilon=100, accountant=BudgetAccountant())
    assert not point.entries


def test_a_gate_must_say_its_unit_and_relation() -> None:
    for gate in (Gate(point_with(), unit="user"), Gate(point_with(), relation="replace")):
        with pytest.raises(OperationRejected, match="has neither"):
            GatedDiffprivlibAccountant(gate)


def test_a_relation_that_the_policy_cannot_follow_is_denied() -> None:
    """From `replace` nothing follows for people who are added or removed."""
    head = HEAD.replace("replace", "add-remove")
    point = started(USER % "2", head=head)
    with pytest.raises(Denied):
        tools.mean(DATA, bounds=(0, 1), epsilon=0.1, accountant=accountant_of(point))


def test_the_example_of_the_page() -> None:
    point = point_with()
    known = run_example("diffprivlib", point=point, incomes=DATA)
    assert 0 <= known["mean"] <= 1
    assert spent(point) == pytest.approx(0.5)
