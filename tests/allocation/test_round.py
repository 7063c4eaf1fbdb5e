"""Rounds on a ledger: one commit, reasons for rejection, and rollback if a release is denied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpolicy.allocation.price_file import load_prices, save_prices
from dpolicy.allocation.problem.knapsack import AllocationProblem, Solution
from dpolicy.allocation.round import allocate
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.balances.balances import Balances
from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  attributes: {zip: {}}
  partitions: {country: {values: [CH, DE]}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 1}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 0.9}}
"""


def release(name: str, epsilon: float, utility: float, *countries: str) -> dict[str, Any]:
    mechanism: dict[str, Any] = {
        "mechanism": {"kind": "declared", "epsilon": epsilon},
        "attributes": ["zip"],
    }
    if countries:
        mechanism["where"] = [{"country": list(countries)}]
    return {"release": name, "utility": utility, "mechanisms": [mechanism]}


BATCH = [
    release("a", 0.6, 2, "CH"),
    release("b", 0.6, 5, "CH"),
    release("c", 0.6, 3, "DE"),
    release("d", 0.95, 9),
    release("e", 0.3, 1),
]


@pytest.fixture
def decision_point(tmp_path: Path) -> DecisionPoint:
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    decision_point = DecisionPoint(MemoryStore())
    decision_point.apply(tmp_path / "policy.yaml")
    return decision_point


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_selected_releases_are_charged_and_others_explained(
    decision_point: DecisionPoint, strategy: str
) -> None:
    result = allocate(decision_point, BATCH, STRATEGIES[strategy])
    assert {*result.selected, *(candidate.release for candidate in result.not_selected)} == set(
        "abcde"
    )
    assert set(decision_point.entries) == set(result.selected)
    assert all(decision.allowed for decision in result.decisions)
    assert result.utility <= result.bound
    rejected = {candidate.release: candidate for candidate in result.not_selected}
    assert not rejected["d"].fits_alone and "cap" in rejected["d"].rejection_reasons[0]
    assert ("a" in rejected) != ("b" in rejected), "only one of them fits"
    other = rejected.get("a") or rejected["b"]
    assert other.fits_alone and [binding.rule for binding in other.binding] == ["global"]


def test_efficient_finds_the_best_selection(decision_point: DecisionPoint) -> None:
    result = allocate(decision_point, BATCH, "efficient")
    assert set(result.selected) == {"b", "c", "e"}


def test_a_dry_run_writes_nothing(decision_point: DecisionPoint) -> None:
    result = allocate(decision_point, BATCH, "efficient", dry_run=True)
    assert result.selected and not result.decisions and not decision_point.entries


def test_a_repeated_round_replays_its_decisions(decision_point: DecisionPoint) -> None:
    first = allocate(decision_point, BATCH, "first-come")
    second = allocate(decision_point, BATCH, "first-come")
    assert not second.selected
    assert [d.release for d in second.decisions if d.replayed] == list(first.selected)
    assert set(decision_point.entries) == set(first.selected)


def test_an_infeasible_release_names_the_exceeded_rule(decision_point: DecisionPoint) -> None:
    decision_point.submit(release("before", 0.8, 1))
    result = allocate(decision_point, [release("late", 0.4, 1, "DE")], "first-come")
    assert not result.not_selected[0].fits_alone
    assert [binding.rule for binding in result.not_selected[0].binding] == ["global"]


def test_an_infeasible_selection_writes_nothing(decision_point: DecisionPoint) -> None:
    def select_all(problem: AllocationProblem) -> Solution:
        return Solution(np.ones(len(problem.ids), bool), 0.0, np.empty(0))

    with pytest.raises(InvariantBroken):
        allocate(decision_point, [BATCH[0], BATCH[1]], select_all)
    assert not decision_point.entries


def test_a_repeated_id_is_rejected(decision_point: DecisionPoint) -> None:
    with pytest.raises(OperationRejected, match="twice"):
        allocate(decision_point, [BATCH[0], BATCH[0]], "first-come")


def test_counter_offers_fit_beside_the_selected_releases(decision_point: DecisionPoint) -> None:
    for dry_run in (True, False):
        result = allocate(decision_point, BATCH, "efficient", dry_run=dry_run)
        rejected = {
            candidate.release: candidate.counter_offers for candidate in result.not_selected
        }
        (noise,) = (offer for offer in rejected["a"] if "factor" in offer)
        assert noise["change"] == "scale every noise parameter by"
    changed = release("a-2", 0.6 / noise["factor"], 2, "CH")
    assert decision_point.submit(changed).allowed, "the selected releases are charged"


def test_the_shadow_price_of_epsilon(decision_point: DecisionPoint) -> None:
    batch = [release(f"r{n}", 0.5, 10 - n) for n in range(6)]
    result = allocate(decision_point, batch, "price", dry_run=True)
    (price,) = result.prices
    assert (price.rule.name, price.notion) == ("global", "epsilon")
    assert price.marginal_utility == pytest.approx(16), "two more of 8 and of 7 or 8 at the margin"


def test_a_dry_run_lists_already_decided_releases(decision_point: DecisionPoint) -> None:
    decision_point.submit(BATCH[0])
    result = allocate(decision_point, BATCH, "efficient", dry_run=True)
    assert result.already_decided == ("a",) and "a" not in result.selected


def test_prices_are_carried_from_round_to_round(
    decision_point: DecisionPoint, tmp_path: Path
) -> None:
    file, policy = tmp_path / "prices.json", decision_point.policy
    assert policy is not None
    requests = [release(f"r{n}", 0.3, 100) for n in range(5)]
    first = allocate(
        decision_point, requests, "price", dry_run=True, carried_prices=load_prices(file, policy)
    )
    assert len(first.selected) == 3 and first.carried_prices is not None
    save_prices(file, policy, first.carried_prices)
    carried_prices = load_prices(file, policy)
    assert carried_prices.rounds == 1
    assert carried_prices.prices.tolist() == first.carried_prices.prices.tolist()
    low, high = release("low", 0.3, 1), release("high", 0.3, 100)
    second = allocate(decision_point, [low, high], "price", carried_prices=carried_prices)
    assert second.selected == ("high",)
    (candidate,) = second.not_selected
    assert (
        candidate.fits_alone
        and not candidate.binding
        and candidate.opportunity_cost
        and candidate.opportunity_cost > 1
    )


def test_prices_of_another_policy_are_ignored(
    decision_point: DecisionPoint, tmp_path: Path
) -> None:
    file, policy = tmp_path / "prices.json", decision_point.policy
    assert policy is not None
    result = allocate(
        decision_point, BATCH, "price", dry_run=True, carried_prices=load_prices(file, policy)
    )
    assert result.carried_prices is not None
    save_prices(file, policy, result.carried_prices)
    (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 1}", "epsilon: 2}"), "utf-8")
    decision_point.apply(tmp_path / "policy.yaml")
    assert (
        decision_point.policy is not None and load_prices(file, decision_point.policy).rounds == 0
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("price", float("nan")), ("price", -1.0), ("age", -1), ("at", [10**30]), ("rule", "other")],
)
def test_invalid_prices_are_rejected(
    decision_point: DecisionPoint, tmp_path: Path, key: str, value: Any
) -> None:
    file, policy = tmp_path / "prices.json", decision_point.policy
    assert policy is not None
    requests = [release(f"r{n}", 0.3, 100) for n in range(5)]
    result = allocate(
        decision_point, requests, "price", dry_run=True, carried_prices=load_prices(file, policy)
    )
    assert result.carried_prices is not None
    save_prices(file, policy, result.carried_prices)
    document = json.loads(file.read_text("utf-8"))
    document["prices"][0][key] = value
    file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(OperationRejected, match="not a valid price file"):
        load_prices(file, policy)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 1, "policy": 3}'])
def test_an_invalid_price_file_is_rejected(
    decision_point: DecisionPoint, tmp_path: Path, text: str
) -> None:
    (tmp_path / "prices.json").write_text(text, "utf-8")
    assert decision_point.policy is not None
    if text.endswith("3}"):
        assert load_prices(tmp_path / "prices.json", decision_point.policy).rounds == 0
    else:
        with pytest.raises(OperationRejected, match=r"prices|version"):
            load_prices(tmp_path / "prices.json", decision_point.policy)


def test_a_dry_run_leaves_the_balances_of_the_ledger_alone(decision_point: DecisionPoint) -> None:
    assert dry_run_changes_nothing(decision_point)


def test_planning_on_the_balances_of_the_ledger_is_detected(
    decision_point: DecisionPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary: without a copy, a dry run charges the selected releases in the ledger state."""
    monkeypatch.setattr(Balances, "copy", lambda self: self)
    assert not dry_run_changes_nothing(decision_point)


def dry_run_changes_nothing(decision_point: DecisionPoint) -> bool:
    decision_point.submit(release("before", 0.1, 1, "CH"))
    before = [balance.loss for balance in decision_point.budgets()]
    assert allocate(decision_point, BATCH, "efficient", dry_run=True).selected
    return [balance.loss for balance in decision_point.budgets()] == before
