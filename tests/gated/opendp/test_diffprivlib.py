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
from diffprivlib.tools.utils import mean as unchecked_mean
from diffprivlib.utils import PrivacyLeakWarning
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.diffprivlib import GatedDiffprivlibAccountant, gated_calls
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


def make_model(name: str, accountant: BudgetAccountant) -> Any:
    """Return a model with ε 1 and all parameters that diffprivlib would take from the data."""
    bounds = {"bounds": (0, 1)}
    parameters: dict[str, dict[str, Any]] = {
        "LinearRegression": {"bounds_X": (0, 1), "bounds_y": (0, 1)},
        "LogisticRegression": {"data_norm": 2},
        "PCA": {**bounds, "data_norm": 2, "n_components": 1},
        "RandomForestClassifier": {**bounds, "classes": [0, 1]},
        "DecisionTreeClassifier": {**bounds, "classes": [0, 1]},
        "KMeans": {**bounds, "n_clusters": 2},
    }
    chosen = parameters.get(name, bounds)
    return getattr(models, name)(epsilon=1, accountant=accountant, **chosen)


def make_accountant(point: DecisionPoint, relation: str = "replace") -> GatedDiffprivlibAccountant:
    return GatedDiffprivlibAccountant(
        Gate(point, unit="user", relation=relation, attributes=["income"])
    )


# Charges of allowed runs


def test_functions_are_charged() -> None:
    point = point_with()
    with make_accountant(point) as accountant:
        tools.mean(DATA, bounds=(0, 1), epsilon=0.5)
        tools.sum(DATA, bounds=(0, 1), epsilon=0.25)
    assert statuses(point) == ["committed", "committed"]
    assert balance(point) == pytest.approx(0.75)
    assert accountant.total()[0] == pytest.approx(0.75)


@pytest.mark.parametrize("name", sorted(gated_calls._FUNCTION_OPTIONS))
def test_a_function_is_refused_under_a_relation_without_its_guarantee(name: str) -> None:
    point, valid = point_with(), gated_calls._RELATIONS[name]
    second = {"histogram2d": (DATA,), "quantile": (0.5,), "percentile": (50,)}
    arguments = (DATA, *second.get(name, ()))
    for relation in {"replace", "add-remove", "change"} - valid:
        accountant = make_accountant(point, relation)
        with pytest.raises(OperationRejected, match=f"the ε of `{name}` does not hold"):
            getattr(tools, name)(*arguments, accountant=accountant)
    assert not point.entries


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


# Data that is not a number


GAPS = np.where(np.arange(200) % 4 == 0, np.nan, DATA)


@pytest.mark.parametrize("name", ["mean", "sum", "var", "std", "median"])
def test_a_gap_does_not_show_in_the_answer(name: str) -> None:
    """diffprivlib answers NaN, with certainty; the gate counts a gap as zero."""
    point, function = point_with(), getattr(tools, name)
    one_gap = np.append(DATA, np.nan)
    plain = function(one_gap, bounds=(0, 1), epsilon=0.5, accountant=BudgetAccountant())
    assert np.isnan(plain)
    with make_accountant(point):
        assert np.isfinite(function(one_gap, bounds=(0, 1), epsilon=0.5))
        assert np.isfinite(function([0.5, None, "x", 10**400], bounds=(0, 1), epsilon=0.5))
    assert balance(point) == pytest.approx(1)


def test_a_gap_counts_as_the_bound_next_to_zero() -> None:
    accountant = make_accountant(point_with("100000"))
    options = {"epsilon": 1e4, "accountant": accountant}
    filled = np.where(np.isnan(GAPS), 0, GAPS).mean()
    assert tools.mean(GAPS, bounds=(0, 1), **options) == pytest.approx(filled, abs=1e-3)
    assert tools.sum([np.nan, 10], bounds=(9, 10), **options) == pytest.approx(19, abs=0.01)
    rows = np.array([[np.nan, 3.0], [5.0, np.nan]])
    sums = tools.sum(rows, bounds=(np.array([4, 2]), np.array([6, 3])), axis=0, **options)
    assert sums == pytest.approx([9, 5], abs=0.01)


def test_a_small_type_does_not_overflow() -> None:
    accountant = make_accountant(point_with("100000"))
    large = np.full(200, 1000, dtype=np.float16)
    answer = tools.sum(large, bounds=(0, 1000), epsilon=1e4, accountant=accountant)
    assert answer == pytest.approx(200_000, abs=10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["GaussianNB", "StandardScaler", "LinearRegression", "KMeans"])
def test_a_gap_does_not_stop_a_model(name: str, value: float) -> None:
    """The error of scikit-learn would reveal that there is one."""
    point, rows = point_with(), FEATURES.copy()
    rows[3, 1] = value
    model = make_model(name, make_accountant(point))
    if name == "LinearRegression":
        model.fit(rows, rows[:, 1])
    else:
        model.fit(rows, CLASSES)
    assert statuses(point) == ["committed"]


# Functions, models and options that the gate does not know


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd", "nansum"])
def test_functions_that_skip_gaps_are_refused(name: str) -> None:
    """Their noise is for all values, and their answer is computed from those that are there."""
    point, data = point_with(), Watched()
    with pytest.raises(OperationRejected, match=f"`{name}` of diffprivlib"), make_accountant(point):
        getattr(tools, name)(data, bounds=(9, 10), epsilon=1)
    assert data.reads == 0
    assert not point.entries


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("histogram", {"weights": [1000.0] * 200}),
        ("histogram", {"bins": "auto"}),
        ("histogram", {"bins": ["auto"]}),
        ("histogram", {"range": (0, np.inf)}),
        ("histogram", {"random_state": 7}),
        ("histogramdd", {"weights": [1000.0] * 200}),
        ("histogramdd", {"range": ((0, 1), None)}),
        ("histogramdd", {"bins": (5, "auto")}),
        ("histogram2d", {"weights": [1000.0] * 200}),
    ],
)
def test_histograms_by_the_data_are_refused(name: str, options: dict[str, Any]) -> None:
    point = point_with()
    rows = {"histogram": (DATA,), "histogramdd": (FEATURES,), "histogram2d": (DATA, DATA)}[name]
    area = (0, 1) if name == "histogram" else [(0, 1), (0, 1)]
    with pytest.raises(OperationRejected, match=next(iter(options))), make_accountant(point):
        getattr(tools, name)(*rows, **{"epsilon": 0.1, "range": area, **options})
    assert not point.entries


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": np.int8},
        {"random_state": 7},
        {"ddof": 1},
        {"where": DATA > 0.5},
        {"bounds": (0, np.inf)},
        {"bounds": (0, 1e200)},
    ],
)
def test_options_of_statistics_are_refused(options: dict[str, Any]) -> None:
    point, data = point_with(), Watched()
    with pytest.raises(OperationRejected, match=next(iter(options))), make_accountant(point):
        tools.mean(data, **{"bounds": (0, 1), "epsilon": 0.5, **options})
    assert data.reads == 0
    assert not point.entries


def test_a_function_that_the_gate_did_not_replace_is_refused() -> None:
    point, data = point_with(), Watched()
    with pytest.raises(OperationRejected, match="not checked by the gate"), make_accountant(point):
        unchecked_mean(data, bounds=(0, 1), epsilon=0.5)
    assert data.reads == 0
    assert not point.entries


@pytest.mark.parametrize("option", ["seed", "weights", "name"])
def test_models_are_refused(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = point_with()
    model = make_model("GaussianNB", make_accountant(point))
    arguments: dict[str, Any] = {}
    if option == "seed":
        model.random_state = 7
    elif option == "weights":
        arguments["sample_weight"] = np.full(200, 1000.0)
    else:
        monkeypatch.setattr(gated_calls, "_MODELS", frozenset())
    with pytest.raises(OperationRejected, match="not supported"):
        model.fit(FEATURES, CLASSES, **arguments)
    assert not hasattr(model, "theta_")
    assert not point.entries


def test_calls_without_a_gate_keep_all_functions_and_options() -> None:
    plain = BudgetAccountant()
    tools.nanmean(GAPS, bounds=(0, 1), epsilon=0.5, random_state=7, accountant=plain)
    tools.histogram(DATA, bins="auto", range=(0, 1), epsilon=0.5, accountant=plain)
    models.GaussianNB(bounds=(0, 1), random_state=7, accountant=plain).fit(FEATURES, CLASSES)
    assert plain.total()[0] == pytest.approx(2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:scipy", "ignore:scipy.optimize")
@pytest.mark.parametrize("name", sorted(gated_calls._MODELS))
def test_all_models_run_and_are_charged(name: str) -> None:
    point = point_with()
    model = make_model(name, make_accountant(point))
    model.fit(FEATURES, CLASSES)
    assert balance(point) == pytest.approx(1)
    if hasattr(model, "fit_transform"):
        model.fit_transform(FEATURES)
        assert balance(point) == pytest.approx(2)


def test_all_functions_run_and_are_charged() -> None:
    point, area = point_with("20"), [(0, 1), (0, 1)]
    with make_accountant(point):
        tools.mean(FEATURES, bounds=(0, 1), axis=0)
        tools.percentile(DATA, [10, 90], bounds=(0, 1))
        tools.count_nonzero(["", "a", "b"])
    assert balance(point) == pytest.approx(3)
    with make_accountant(point, "add-remove"):
        tools.histogram(DATA, bins=[0, 0.2, 1], range=(0, 1), density=True)
        tools.histogramdd(FEATURES, bins=[[0, 0.5, 1], 4], range=area)
        tools.histogram2d(DATA, DATA, bins=np.linspace(0, 1, 5), range=area)
    assert balance(point) == pytest.approx(3 + 2 * 3), "a replacement is a removal and an addition"


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
    accountant = make_accountant(point, "add-remove" if leak == "histogram" else "replace")
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
