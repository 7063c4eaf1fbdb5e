"""Batches on a ledger: winners in one commit, losers told why, nothing if a winner does not fit."""

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
    said: dict[str, Any] = {
        "mechanism": {"kind": "declared", "epsilon": epsilon},
        "attributes": ["zip"],
    }
    if countries:
        said["where"] = [{"country": list(countries)}]
    return {"release": name, "utility": utility, "mechanisms": [said]}


BATCH = [
    release("a", 0.6, 2, "CH"),
    release("b", 0.6, 5, "CH"),
    release("c", 0.6, 3, "DE"),
    release("d", 0.95, 9),
    release("e", 0.3, 1),
]


@pytest.fixture
def point(tmp_path: Path) -> DecisionPoint:
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    made = DecisionPoint(MemoryStore())
    made.apply(tmp_path / "policy.yaml")
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_winner_is_charged_and_every_loser_told(point: DecisionPoint, strategy: str) -> None:
    found = allocate(point, BATCH, STRATEGIES[strategy])
    assert {*found.selected, *(loser.release for loser in found.not_selected)} == set("abcde")
    assert set(point.entries) == set(found.selected)
    assert all(decision.allowed for decision in found.decisions)
    assert found.utility <= found.bound
    told = {loser.release: loser for loser in found.not_selected}
    assert not told["d"].fits_alone and "cap" in told["d"].refusal_reasons[0]
    assert ("a" in told) != ("b" in told), "one of them fits, not both"
    out = told.get("a") or told["b"]
    assert out.fits_alone and [binding.rule for binding in out.binding] == ["global"]


def test_the_best_choice_is_the_best(point: DecisionPoint) -> None:
    found = allocate(point, BATCH, "efficient")
    assert set(found.selected) == {"b", "c", "e"}


def test_a_dry_run_writes_nothing(point: DecisionPoint) -> None:
    found = allocate(point, BATCH, "efficient", dry_run=True)
    assert found.selected and not found.decisions and not point.entries


def test_a_batch_that_is_sent_again_keeps_its_answers(point: DecisionPoint) -> None:
    first = allocate(point, BATCH, "first-come")
    again = allocate(point, BATCH, "first-come")
    assert not again.selected
    assert [d.release for d in again.decisions if d.replayed] == list(first.selected)
    assert set(point.entries) == set(first.selected)


def test_a_loser_that_fits_nowhere_is_told_the_rule(point: DecisionPoint) -> None:
    point.submit(release("before", 0.8, 1))
    found = allocate(point, [release("late", 0.4, 1, "DE")], "first-come")
    assert not found.not_selected[0].fits_alone
    assert [binding.rule for binding in found.not_selected[0].binding] == ["global"]


def test_a_strategy_that_takes_too_much_writes_nothing(point: DecisionPoint) -> None:
    def greedy(problem: AllocationProblem) -> Solution:
        return Solution(np.ones(len(problem.ids), bool), 0.0, np.empty(0))

    with pytest.raises(InvariantBroken):
        allocate(point, [BATCH[0], BATCH[1]], greedy)
    assert not point.entries


def test_an_id_may_not_be_there_twice(point: DecisionPoint) -> None:
    with pytest.raises(OperationRejected, match="twice"):
        allocate(point, [BATCH[0], BATCH[0]], "first-come")


def test_losers_are_told_what_would_fit_beside_the_winners(point: DecisionPoint) -> None:
    for dry_run in (True, False):
        found = allocate(point, BATCH, "efficient", dry_run=dry_run)
        told = {loser.release: loser.counter_offers for loser in found.not_selected}
        (noise,) = (offer for offer in told["a"] if "factor" in offer)
        assert noise["change"] == "scale every noise parameter by"
    changed = release("a-2", 0.6 / noise["factor"], 2, "CH")
    assert point.submit(changed).allowed, "the winners are charged by now"


def test_what_one_more_epsilon_would_be_worth(point: DecisionPoint) -> None:
    batch = [release(f"r{n}", 0.5, 10 - n) for n in range(6)]
    found = allocate(point, batch, "price", dry_run=True)
    (price,) = found.prices
    assert (price.rule.name, price.notion) == ("global", "epsilon")
    assert price.marginal_utility == pytest.approx(16), "two more of 8 and of 7 or 8 at the margin"


def test_a_dry_run_tells_what_was_decided_before(point: DecisionPoint) -> None:
    point.submit(BATCH[0])
    found = allocate(point, BATCH, "efficient", dry_run=True)
    assert found.already_decided == ("a",) and "a" not in found.selected


def test_prices_are_carried_from_round_to_round(point: DecisionPoint, tmp_path: Path) -> None:
    file, policy = tmp_path / "prices.json", point.policy
    assert policy is not None
    crowd = [release(f"r{n}", 0.3, 100) for n in range(5)]
    first = allocate(point, crowd, "price", dry_run=True, market=load_prices(file, policy))
    assert len(first.selected) == 3 and first.carried_prices is not None
    save_prices(file, policy, first.carried_prices)
    market = load_prices(file, policy)
    assert market.rounds == 1 and market.prices.tolist() == first.carried_prices.prices.tolist()
    low, high = release("low", 0.3, 1), release("high", 0.3, 100)
    second = allocate(point, [low, high], "price", market=market)
    assert second.selected == ("high",)
    (loser,) = second.not_selected
    assert (
        loser.fits_alone
        and not loser.binding
        and loser.opportunity_cost
        and loser.opportunity_cost > 1
    )


def test_prices_of_another_policy_are_forgotten(point: DecisionPoint, tmp_path: Path) -> None:
    file, policy = tmp_path / "prices.json", point.policy
    assert policy is not None
    found = allocate(point, BATCH, "price", dry_run=True, market=load_prices(file, policy))
    assert found.carried_prices is not None
    save_prices(file, policy, found.carried_prices)
    (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 1}", "epsilon: 2}"), "utf-8")
    point.apply(tmp_path / "policy.yaml")
    assert point.policy is not None and load_prices(file, point.policy).rounds == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("price", float("nan")), ("price", -1.0), ("age", -1), ("at", [10**30]), ("rule", "other")],
)
def test_prices_that_are_none_are_told(
    point: DecisionPoint, tmp_path: Path, key: str, value: Any
) -> None:
    file, policy = tmp_path / "prices.json", point.policy
    assert policy is not None
    crowd = [release(f"r{n}", 0.3, 100) for n in range(5)]
    found = allocate(point, crowd, "price", dry_run=True, market=load_prices(file, policy))
    assert found.carried_prices is not None
    save_prices(file, policy, found.carried_prices)
    said = json.loads(file.read_text("utf-8"))
    said["prices"][0][key] = value
    file.write_text(json.dumps(said), "utf-8")
    with pytest.raises(OperationRejected, match="not a list of prices"):
        load_prices(file, policy)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 1, "policy": 3}'])
def test_a_file_that_has_no_prices_is_told(point: DecisionPoint, tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.json").write_text(text, "utf-8")
    assert point.policy is not None
    if text.endswith("3}"):
        assert load_prices(tmp_path / "prices.json", point.policy).rounds == 0
    else:
        with pytest.raises(OperationRejected, match=r"prices|version"):
            load_prices(tmp_path / "prices.json", point.policy)


def test_a_dry_run_leaves_the_balances_of_the_ledger_alone(point: DecisionPoint) -> None:
    assert dry_run_changes_nothing(point)


def test_a_choice_on_the_ledgers_own_balances_is_caught(
    point: DecisionPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary: without a copy, the winners of a dry run are charged in the state."""
    monkeypatch.setattr(Balances, "copy", lambda self: self)
    assert not dry_run_changes_nothing(point)


def dry_run_changes_nothing(point: DecisionPoint) -> bool:
    point.submit(release("before", 0.1, 1, "CH"))
    before = [balance.loss for balance in point.budgets()]
    assert allocate(point, BATCH, "efficient", dry_run=True).selected
    return [balance.loss for balance in point.budgets()] == before
