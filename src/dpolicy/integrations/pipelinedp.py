"""Gate for PipelineDP: charges the total budget of a pipeline before the pipeline can compute.

A mechanism of a pipeline gets its noise from `compute_budgets` and cannot run before. The gate
commits the budget there and not at the end of the pipeline: a lazy pipeline can be run at any time,
and the gate is not notified.

Some methods and options of `DPEngine` read the data without the budget of the accountant, or rely
on bounds that nothing enforces. Importing this module changes `DPEngine`: with a gated accountant,
an engine allows only the methods and options that are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, NoReturn

from pipeline_dp import (
    AddDPNoiseParams,
    AggregateParams,
    DPEngine,
    NaiveBudgetAccountant,
    SelectPartitionsParams,
)

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import epsilon_delta_mechanism
from dpolicy.integrations.gate import Gate

#: Options of each parameter class that may have any value. Others must have their default value.
_FREE_OPTIONS: Mapping[type, frozenset[str]] = {
    AggregateParams: frozenset(
        {
            "metrics",
            "noise_kind",
            "max_partitions_contributed",
            "max_contributions_per_partition",
            "max_contributions",
            "budget_weight",
            "min_value",
            "max_value",
            "min_sum_per_partition",
            "max_sum_per_partition",
            "vector_norm_kind",
            "vector_max_norm",
            "vector_size",
            "partition_selection_strategy",
            "pre_threshold",
            "post_aggregation_thresholding",
            "output_noise_stddev",
        }
    ),
    SelectPartitionsParams: frozenset(
        {
            "max_partitions_contributed",
            "budget_weight",
            "partition_selection_strategy",
            "pre_threshold",
        }
    ),
    AddDPNoiseParams: frozenset(
        {
            "noise_kind",
            "l0_sensitivity",
            "linf_sensitivity",
            "l1_sensitivity",
            "l2_sensitivity",
            "budget_weight",
            "output_noise_stddev",
        }
    ),
}

#: Methods of `DPEngine` that read no data.
_HARMLESS_METHODS = frozenset({"explain_computations_report"})


class GatedBudgetAccountant(NaiveBudgetAccountant):  # type: ignore[misc]
    """PipelineDP accountant whose total budget is decided by a policy.

    The unit of the gate must be the entity that the privacy ids of the pipeline identify.
    """

    def __init__(
        self,
        gate: Gate,
        total_epsilon: float,
        total_delta: float,
        num_aggregations: int | None = None,
        aggregation_weights: list[float] | None = None,
        name: str = "pipelinedp",
    ) -> None:
        if gate.relation not in (None, "add-remove"):
            raise OperationRejected(f"PipelineDP protects `add-remove`, not `{gate.relation}`")
        super().__init__(total_epsilon, total_delta, num_aggregations, aggregation_weights)
        self._gate = replace(gate, relation="add-remove")
        self._name = name

    def scope(self, weight: float) -> Any:
        """Return a scope, or refuse a weight that takes budget from other mechanisms."""
        _check_weight(weight)
        return super().scope(weight)

    def compute_budgets(self) -> None:
        """Charge the total and distribute it. Raise `Denied` without changing the pipeline."""
        if self._finalized or self._scopes_stack or not self._mechanisms:
            super().compute_budgets()  # Raises or warns, and distributes nothing.
            return
        self._check_aggregation_restrictions()
        for mechanism in self._mechanisms:
            _check_weight(mechanism.weight)
            _check_count(mechanism.mechanism_spec.count)
        mechanism = epsilon_delta_mechanism(self._total_epsilon, self._total_delta)
        with self._gate.reserve(self._name, self._gate.mechanism_fields(mechanism)):
            super().compute_budgets()


class _GatedEngine(DPEngine):  # type: ignore[misc]
    """Engine of a gated accountant. The loop below refuses all methods that it does not define."""

    def aggregate(
        self,
        col: Any,
        params: AggregateParams,
        data_extractors: Any,
        public_partitions: Any = None,
        out_explain_computation_report: Any = None,
    ) -> Any:
        """Return lazy aggregates, as `DPEngine` does."""
        checked = _check_and_copy(params, AggregateParams)
        return super().aggregate(
            col, checked, data_extractors, public_partitions, out_explain_computation_report
        )

    def select_partitions(
        self, col: Any, params: SelectPartitionsParams, data_extractors: Any
    ) -> Any:
        """Return lazy partitions, as `DPEngine` does."""
        checked = _check_and_copy(params, SelectPartitionsParams)
        return super().select_partitions(col, checked, data_extractors)

    def add_dp_noise(
        self, col: Any, params: AddDPNoiseParams, out_explain_computation_report: Any = None
    ) -> Any:
        """Return lazy noisy values, as `DPEngine` does. The caller attests their sensitivity."""
        checked = _check_and_copy(params, AddDPNoiseParams)
        return super().add_dp_noise(col, checked, out_explain_computation_report)


def _check_and_copy(params: Any, expected: type[Any]) -> Any:
    """Return a copy of the parameters, which later changes do not affect, or refuse them."""
    if type(params) is not expected:
        raise OperationRejected(
            f"the parameters are `{type(params).__name__}`; help: use `{expected.__name__}`"
        )
    for option in fields(params):
        value = getattr(params, option.name)
        if option.name not in _FREE_OPTIONS[expected] and value != option.default:
            raise OperationRejected(
                f"option `{option.name}` of `{expected.__name__}` is `{value}`: PipelineDP then "
                f"does not enforce what the noise assumes; help: leave it at `{option.default}`"
            )
    _check_weight(params.budget_weight)
    return deepcopy(params)


def _check_weight(weight: Any) -> None:
    """Refuse a weight that is not positive: other mechanisms would get more than the total."""
    if not (weight > 0 and math.isfinite(weight)):  # Also true for NaN.
        raise OperationRejected(
            f"a budget weight must be a positive number, got `{weight}`; "
            "help: remove aggregations that you do not run"
        )


def _check_count(count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OperationRejected(
            f"the count of a mechanism must be an integer of at least 1, got `{count}`"
        )


def _refuse_method(name: str) -> Callable[..., NoReturn]:
    """Return a replacement for a method of the engine that refuses every call."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OperationRejected(
            f"`{name}` of the engine is not charged by its accountant; help: use "
            "`aggregate` with bounds that do not depend on the data"
        )

    return refuse


for _name in dir(DPEngine):
    if not (_name.startswith("_") or _name in _HARMLESS_METHODS or _name in vars(_GatedEngine)):
        setattr(_GatedEngine, _name, _refuse_method(_name))

_initialize_engine = DPEngine.__init__


def _initialize_and_restrict(self: Any, budget_accountant: Any, backend: Any) -> None:
    """Initialize an engine, and restrict it if its accountant is gated."""
    _initialize_engine(self, budget_accountant, backend)
    if not isinstance(budget_accountant, GatedBudgetAccountant):
        return
    if type(self) not in (DPEngine, _GatedEngine):
        raise OperationRejected(
            f"engine `{type(self).__name__}` may read data without a charge; help: use `DPEngine`"
        )
    self.__class__ = _GatedEngine


# Modules of PipelineDP for Spark and Beam create their engines themselves.
DPEngine.__init__ = _initialize_and_restrict
