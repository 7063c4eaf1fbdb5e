"""Functions, models and options of diffprivlib that a gated accountant allows.

The accountant sees only an ε. It cannot see that a function fits its noise to other data than it
reads (`nanmean`), or takes its output from the data (bins by name). Therefore a gated call allows
only the functions and options that are listed here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
from diffprivlib import BudgetAccountant, models, tools

from dpolicy.errors import OperationRejected
from dpolicy.integrations.diffprivlib.number_array import NumberArray
from dpolicy.integrations.diffprivlib.reserving_accountant import GatedDiffprivlibAccountant

_STATISTIC = frozenset({"array", "epsilon", "bounds", "axis", "keepdims"})
_HISTOGRAM = frozenset({"epsilon", "bins", "range", "density"})

#: Options of each allowed function that may have a value.
_FUNCTION_OPTIONS: Mapping[str, frozenset[str]] = {
    "mean": _STATISTIC,
    "var": _STATISTIC,
    "std": _STATISTIC,
    "sum": _STATISTIC,
    "median": _STATISTIC,
    "quantile": _STATISTIC | {"quant"},
    "percentile": _STATISTIC | {"percent"},
    "count_nonzero": _STATISTIC - {"bounds"},
    "histogram": _HISTOGRAM | {"sample"},
    "histogramdd": _HISTOGRAM | {"sample"},
    "histogram2d": _HISTOGRAM | {"array_x", "array_y"},
}

#: Relations under which the noise of a function gives its ε. A statistic assumes that the number of
#: records is public; a histogram assumes that a record is present or absent.
_RELATIONS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("mean", "var", "std", "sum", "count_nonzero"), frozenset({"replace"})),
    **dict.fromkeys(("histogram", "histogramdd", "histogram2d"), frozenset({"add-remove"})),
    **dict.fromkeys(("median", "quantile", "percentile"), frozenset({"replace", "add-remove"})),
}

#: Allowed models, and arguments of their methods that may have a value.
_MODELS = frozenset(
    {
        "DecisionTreeClassifier",
        "GaussianNB",
        "KMeans",
        "LinearRegression",
        "LogisticRegression",
        "PCA",
        "RandomForestClassifier",
        "StandardScaler",
    }
)
_MODEL_ARGUMENTS = frozenset({"self", "X", "y", "classes"})
_NUMBER_ARGUMENTS = {"LinearRegression": ("X", "y")}
_MODEL_METHODS = ("fit", "partial_fit", "fit_transform", "fit_predict")

#: Largest absolute bound: sums of values within larger bounds can overflow.
_LARGEST_BOUND = 1e100


def gate_functions() -> None:
    """Replace the functions of `diffprivlib.tools` by functions that check gated calls."""
    for name, function in vars(tools).items():
        if inspect.isfunction(function):
            setattr(tools, name, _gate_function(name, function))


def gate_models() -> None:
    """Replace the methods of models that spend budget by methods that check gated calls."""
    for model in vars(models).values():
        for name in _MODEL_METHODS if inspect.isclass(model) else ():
            if hasattr(model, name):
                setattr(model, name, _gate_method(model.__name__, getattr(model, name)))


def _gate_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @wraps(function)
    def check_and_call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        accountant = BudgetAccountant.load_default(bound.arguments.pop("accountant", None))
        if not isinstance(accountant, GatedDiffprivlibAccountant):
            return function(*arguments, **named)
        options = {**bound.arguments.pop("unused_args", {}), **bound.arguments}
        _check_function(name, options)
        _check_relation(name, accountant.relation)
        if "array" in options and name != "count_nonzero":
            options["array"] = NumberArray(options["array"])
        with accountant.allow_call():
            return function(**options, accountant=accountant)

    return check_and_call


def _gate_method(model: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def check_and_call(self: Any, *arguments: Any, **named: Any) -> Any:
        accountant = self.accountant
        if not isinstance(accountant, GatedDiffprivlibAccountant) or accountant.is_in_call:
            return method(self, *arguments, **named)
        _check_model(model, self)
        bound = signature.bind(self, *arguments, **named)
        options = {**bound.arguments.pop("fit_params", {}), **bound.arguments}
        _check_options(model, options, _MODEL_ARGUMENTS)
        del options["self"]
        for name in _NUMBER_ARGUMENTS.get(model, ("X",)):
            options[name] = NumberArray(options[name], finite=True)
        with accountant.allow_call():
            return method(self, **options)

    return check_and_call


def _check_function(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a function or option whose cost can exceed its ε."""
    if name not in _FUNCTION_OPTIONS:
        raise OperationRejected(
            f"`{name}` of diffprivlib is not supported: its noise may not protect what it reads; "
            f"help: use one of {', '.join(sorted(_FUNCTION_OPTIONS))}"
        )
    _check_options(name, options, _FUNCTION_OPTIONS[name])
    _check_public_numbers("bounds", options.get("bounds"))
    _check_public_numbers("bins", options.get("bins"))
    _check_public_numbers("range", options.get("range"))


def _check_relation(name: str, relation: str) -> None:
    """Refuse a function whose ε does not hold under the relation of the gate."""
    valid = _RELATIONS[name]
    if relation not in valid:
        raise OperationRejected(
            f"the ε of `{name}` does not hold under the relation `{relation}` of the gate; help: "
            f"state {' or '.join(f'`{choice}`' for choice in sorted(valid))}"
        )


def _check_model(name: str, model: Any) -> None:
    if name not in _MODELS:
        raise OperationRejected(f"model `{name}` of diffprivlib is not supported")
    if model.random_state is not None:
        raise OperationRejected(_REPEATABLE_NOISE)


_REPEATABLE_NOISE = (
    "`random_state` is not supported: with the seed, the noise can be repeated; help: omit it"
)


def _check_options(name: str, options: Mapping[str, Any], allowed: frozenset[str]) -> None:
    for option, value in options.items():
        if option == "random_state" and value is not None:
            raise OperationRejected(_REPEATABLE_NOISE)
        if option not in allowed and value is not None:
            raise OperationRejected(
                f"option `{option}` of `{name}` is not supported: its cost may exceed the charged "
                "ε; help: omit it"
            )


def _check_public_numbers(option: str, value: Any) -> None:
    """Refuse bounds, bins and ranges that are not numbers: diffprivlib takes them from the data.

    A missing option is refused by diffprivlib itself, with a warning that is an error here.
    """
    if value is not None and not _are_numbers(value):
        raise OperationRejected(
            f"`{option}` must consist of finite numbers, got `{value}`; help: state numbers that "
            "do not depend on the data"
        )


def _are_numbers(value: Any) -> bool:
    """Return whether a value is a number, or consists of numbers, up to two levels deep."""
    if isinstance(value, (list, tuple)):
        return all(_are_numbers(part) for part in value)
    numbers = np.asarray(value)
    return numbers.dtype.kind in "iuf" and bool(np.all(np.abs(numbers) <= _LARGEST_BOUND))
