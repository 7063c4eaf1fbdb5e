"""The gate for PipelineDP with the real engine on lazy local data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pipeline_dp
import pytest
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.pipelinedp import GatedBudgetAccountant
from dpolicy.pdp.decision_point import DecisionPoint

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7, orders: []}
units: {user: {relation: change}}
schema:
  attributes: {page: {risk: low}}
"""
USER = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
ROWS = [(user, "abc"[user % 3]) for user in range(900)]


class Watched:
    """Rows that count how many were read, and can fail after five."""

    def __init__(self, broken: bool = False) -> None:
        self.reads = 0
        self._broken = broken

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for row in ROWS:
            self.reads += 1
            if self._broken and self.reads > 5:
                raise OSError("the disk is gone")
            yield row


def point_with(budget: str = "{epsilon: 9, delta: 1e-3}") -> DecisionPoint:
    return started(USER % budget, head=HEAD)


def make_accountant(
    point: DecisionPoint, epsilon: float, **arguments: Any
) -> GatedBudgetAccountant:
    gate = Gate(point, unit="user", attributes=["page"])
    return GatedBudgetAccountant(gate, epsilon, 1e-6, **arguments)


def pipeline(accountant: Any, data: Any) -> Any:
    """Return lazy counts of visits and users by page."""
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 0,
    )
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    return engine.aggregate(data, params, extractors)


def test_the_total_budget_is_charged_before_data_is_read() -> None:
    point, data = point_with(), Watched()
    accountant = make_accountant(point, 2)
    counts = pipeline(accountant, data)
    accountant.compute_budgets()
    assert statuses(point) == ["committed"]
    assert balance(point) == pytest.approx(4)  # 2 for a user added or removed, twice for a change
    assert data.reads == 0
    assert {page for page, _ in counts} == {"a", "b", "c"}
    assert data.reads == len(ROWS)
    used = sum(spec.eps * spec.count for spec in accountant.mechanism_specs)
    assert used == pytest.approx(2)


def test_a_denied_pipeline_cannot_run() -> None:
    point = point_with("{epsilon: 1, delta: 1e-3}")
    accountant = make_accountant(point, 2)
    counts = pipeline(accountant, Watched())
    with pytest.raises(Denied):
        accountant.compute_budgets()
    assert statuses(point) == ["denied"]
    with pytest.raises(AssertionError, match="not calculated yet"):
        list(counts)


def test_a_denied_pipeline_reads_nothing() -> None:
    point, data = point_with("{epsilon: 1, delta: 1e-3}"), Watched()
    accountant = make_accountant(point, 2)
    _ = pipeline(accountant, data)
    with pytest.raises(Denied):
        accountant.compute_budgets()
    assert data.reads == 0


def test_a_crash_while_reading_stays_charged() -> None:
    point, data = point_with(), Watched(broken=True)
    accountant = make_accountant(point, 2)
    counts = pipeline(accountant, data)
    accountant.compute_budgets()
    with pytest.raises(OSError, match="disk"):
        list(counts)
    assert statuses(point) == ["committed"]
    assert balance(point) == pytest.approx(4)


# Attempts to bypass the gate


def test_an_answer_is_computed_once() -> None:
    accountant = make_accountant(point_with(), 2)
    counts = pipeline(accountant, ROWS)
    accountant.compute_budgets()
    assert list(counts) == list(counts)


def test_no_aggregation_is_added_after_the_budget_is_distributed() -> None:
    point = point_with()
    accountant = make_accountant(point, 2)
    pipeline(accountant, ROWS)
    accountant.compute_budgets()
    with pytest.raises(Exception, match="after compute_budgets"):
        pipeline(accountant, ROWS)
    with pytest.raises(Exception, match="twice"):
        accountant.compute_budgets()
    assert statuses(point) == ["committed"]


def test_a_failed_distribution_is_not_charged() -> None:
    point = point_with()
    make_accountant(point, 2).compute_budgets()
    accountant = make_accountant(point, 2, num_aggregations=2)
    pipeline(accountant, ROWS)
    with pytest.raises(ValueError, match="num_aggregations"):
        accountant.compute_budgets()
    scoped = make_accountant(point, 2)
    pipeline(scoped, ROWS)
    with pytest.raises(Exception, match="within a budget scope"), scoped.scope(weight=1):
        scoped.compute_budgets()
    assert not point.entries


# Entry points and options that the accountant does not charge


def engine_with(accountant: Any) -> Any:
    return pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())


def extractors() -> Any:
    return pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 0,
    )


def count_params(**options: Any) -> Any:
    limits = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    return pipeline_dp.AggregateParams(metrics=[pipeline_dp.Metrics.COUNT], **limits, **options)


def test_bounds_from_the_data_are_refused() -> None:
    """This method has an ε of its own, which no accountant sees."""
    point, data = point_with(), Watched()
    engine = engine_with(make_accountant(point, 1))
    params = pipeline_dp.CalculatePrivateContributionBoundsParams(
        aggregation_noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        aggregation_eps=1,
        aggregation_delta=1e-6,
        calculation_eps=1000,
        max_partitions_contributed_upper_bound=10,
    )
    with pytest.raises(OperationRejected, match="not charged by its accountant"):
        engine.calculate_private_contribution_bounds(data, params, extractors(), ["a", "b", "c"])
    assert data.reads == 0
    assert not point.entries


def test_every_method_of_the_engine_is_known_or_refused() -> None:
    engine = engine_with(make_accountant(point_with(), 1))
    allowed = {"aggregate", "select_partitions", "add_dp_noise", "explain_computations_report"}
    for name in dir(pipeline_dp.DPEngine):
        if not name.startswith("_") and name not in allowed:
            with pytest.raises(OperationRejected):
                getattr(engine, name)()


def test_an_engine_that_is_not_gated_keeps_its_methods() -> None:
    engine = engine_with(pipeline_dp.NaiveBudgetAccountant(1, 1e-6))
    assert type(engine) is pipeline_dp.DPEngine


def test_a_subclass_of_the_engine_is_refused() -> None:
    class Own(pipeline_dp.DPEngine):  # type: ignore[misc]
        pass

    with pytest.raises(OperationRejected, match="`Own`"):
        Own(make_accountant(point_with(), 1), pipeline_dp.LocalBackend())


@pytest.mark.parametrize("weight", [0, -999, float("nan"), float("inf")])
def test_a_weight_that_is_not_positive_is_refused(weight: float) -> None:
    """Weights 1000 and -999 would give the first aggregation 1000 times the total."""
    point, data = point_with(), Watched()
    accountant = make_accountant(point, 1)
    engine = engine_with(accountant)
    engine.aggregate(data, count_params(budget_weight=1000), extractors())
    with pytest.raises(OperationRejected, match="positive number"):
        engine.aggregate(data, count_params(budget_weight=weight), extractors())
    with pytest.raises(OperationRejected, match="positive number"):
        accountant.scope(weight)
    assert data.reads == 0
    assert not point.entries


def test_mechanisms_share_the_total() -> None:
    point = point_with()
    accountant = make_accountant(point, 1)
    laplace = pipeline_dp.aggregate_params.MechanismType.LAPLACE
    accountant.request_budget(laplace, weight=1000)
    accountant.request_budget(laplace, weight=-999)
    with pytest.raises(OperationRejected, match="positive number"):
        accountant.compute_budgets()
    other = make_accountant(point, 1)
    other.request_budget(laplace, count=-1)
    with pytest.raises(OperationRejected, match="count of a mechanism"):
        other.compute_budgets()
    assert not point.entries


class ExactSum(pipeline_dp.combiners.CustomCombiner):  # type: ignore[misc]
    """Combiner that requests no budget and returns the exact sum."""

    def request_budget(self, _: Any) -> None:
        pass

    def create_accumulator(self, values: Any) -> int:
        return len(values)

    def merge_accumulators(self, first: int, second: int) -> int:
        return first + second

    def compute_metrics(self, accumulator: int) -> int:
        return accumulator

    def explain_computation(self) -> str:
        return "exact"

    def metrics_names(self) -> list[str]:
        return ["exact"]


@pytest.mark.parametrize(
    "option",
    [
        {"contribution_bounds_already_enforced": True},
        {"public_partitions_already_filtered": True},
        {"perform_cross_partition_contribution_bounding": False},
    ],
)
def test_bounds_that_nothing_enforces_are_refused(option: dict[str, Any]) -> None:
    point, data = point_with(), Watched()
    engine = engine_with(make_accountant(point, 1))
    with pytest.raises(OperationRejected, match=next(iter(option))):
        engine.aggregate(data, count_params(**option), extractors())
    assert data.reads == 0
    assert not point.entries


def test_partitions_whose_bounds_nothing_enforces_are_refused() -> None:
    params = pipeline_dp.SelectPartitionsParams(1, contribution_bounds_already_enforced=True)
    engine = engine_with(make_accountant(point_with(), 1))
    with pytest.raises(OperationRejected, match="contribution_bounds_already_enforced"):
        engine.select_partitions(Watched(), params, extractors())


def test_a_custom_combiner_is_refused() -> None:
    point, data = point_with(), Watched()
    limits = {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    params = pipeline_dp.AggregateParams(metrics=None, custom_combiners=[ExactSum()], **limits)
    engine = engine_with(make_accountant(point, 1))
    with pytest.raises(OperationRejected, match="custom_combiners"):
        engine.aggregate(data, params, extractors(), public_partitions=["a", "b", "c"])
    assert data.reads == 0
    assert not point.entries


def test_known_methods_run() -> None:
    accountant = make_accountant(point_with(), 4)
    engine = engine_with(accountant)
    selection = pipeline_dp.SelectPartitionsParams(max_partitions_contributed=1)
    noise = pipeline_dp.AddDPNoiseParams(pipeline_dp.NoiseKind.LAPLACE, l1_sensitivity=1)
    pages = engine.select_partitions(ROWS, selection, extractors())
    noisy = engine.add_dp_noise([("a", 300)], noise)
    accountant.compute_budgets()
    assert set(pages) == {"a", "b", "c"}
    assert len(list(noisy)) == 1
    assert len(engine.explain_computations_report()) == 2


def test_another_relation_is_refused() -> None:
    with pytest.raises(OperationRejected, match="protects `add-remove`"):
        GatedBudgetAccountant(Gate(point_with(), relation="change"), 1, 1e-6)


def test_the_example_of_the_page() -> None:
    point = point_with()
    variables = run_example("pipelinedp", point=point, visits=ROWS)
    assert {page for page, _ in variables["counts"]} == {"a", "b", "c"}
    assert balance(point) == pytest.approx(2)
