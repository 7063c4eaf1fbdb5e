"""A pipeline of PipelineDP → a release of its whole budget, charged before it can compute.

No mechanism of a pipeline knows its noise before `compute_budgets`, and none can run without. The
budget is committed there and not when the pipeline ends: a lazy pipeline may be run by anybody, at
any time, and nobody hears of it.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline_dp import NaiveBudgetAccountant

from dpolicy.errors import OperationRejected
from dpolicy.integrations.float_rounding import round_loss_up, round_up
from dpolicy.integrations.gate import Gate


class GatedBudgetAccountant(NaiveBudgetAccountant):  # type: ignore[misc]
    """PipelineDP's accountant, with a policy that decides about its total.

    The gate's `unit` is whoever the privacy ids of the pipeline stand for.
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
        """Charge the total and hand it out, or raise `Denied` and leave the pipeline as it was."""
        if self._finalized or self._scopes_stack or not self._mechanisms:
            super().compute_budgets()  # which has a word for each of these, and hands out nothing
            return
        self._check_aggregation_restrictions()
        said = {"kind": "declared", "epsilon": round_loss_up(self._total_epsilon)}
        delta = {"delta": round_up(self._total_delta)} if self._total_delta else {}
        with self._gate.reserve(self._name, self._gate.mechanism_fields({**said, **delta})):
            super().compute_budgets()
