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


def test_another_relation_is_refused() -> None:
    with pytest.raises(OperationRejected, match="protects `add-remove`"):
        GatedBudgetAccountant(Gate(point_with(), relation="change"), 1, 1e-6)


def test_the_example_of_the_page() -> None:
    point = point_with()
    variables = run_example("pipelinedp", point=point, visits=ROWS)
    assert {page for page, _ in variables["counts"]} == {"a", "b", "c"}
    assert balance(point) == pytest.approx(2)
