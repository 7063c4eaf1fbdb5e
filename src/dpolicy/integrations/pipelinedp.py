"""Gate for PipelineDP: charges the total budget of a pipeline before the pipeline can compute.

A mechanism of a pipeline gets its noise from `compute_budgets` and cannot run before. The gate
commits the budget there and not at the end of the pipeline: a lazy pipeline can be run at any time,
and the gate is not notified.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline_dp import NaiveBudgetAccountant

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import epsilon_delta_mechanism
from dpolicy.integrations.gate import Gate


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

    def compute_budgets(self) -> None:
        """Charge the total and distribute it. Raise `Denied` without changing the pipeline."""
        if self._finalized or self._scopes_stack or not self._mechanisms:
            super().compute_budgets()  # Raises or warns, and distributes nothing.
            return
        self._check_aggregation_restrictions()
        mechanism = epsilon_delta_mechanism(self._total_epsilon, self._total_delta)
        with self._gate.reserve(self._name, self._gate.mechanism_fields(mechanism)):
            super().compute_budgets()
