"""Cost rules: the first version keeps all costs, the second never charges more."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from tests.privacy.golden_costs import (
    CERTIFICATES,
    GOLDEN,
    MECHANISMS,
    PERIODS,
    SIZES,
    golden_costs,
    parse_golden,
)

from dpolicy.balances.enforced_policy import enforce, state_mechanism
from dpolicy.ledger.events import PolicyApplied
from dpolicy.pdp.policy_changes.recorded_policy import compile_recorded_policy
from dpolicy.policy.accounting.accounting_defaults import DEFAULTS
from dpolicy.privacy.certificates import renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Loss, is_at_most, unbounded_loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, parse_period
from dpolicy.releases.release import MechanismRequest


def test_the_first_rules_keep_every_cost() -> None:
    """A recorded decision is recomputed, so a cost of the first rules must never change."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    costs = golden_costs()
    assert [name for name in golden if golden[name] != costs[name]] == []
    assert golden.keys() == costs.keys()


def test_the_number_of_the_defaults_selects_the_rules() -> None:
    assert {number: value.cost_rules for number, value in DEFAULTS.items()} == {
        1: CostRules.FIRST,
        2: CostRules.FIRST,
        3: CostRules.SECOND,
    }


POLICY = """
dpolicy: 1
units: {user: {relation: change}}
policies:
  - {name: everything, kind: custom, when: "true", unit: user, budget: {rho: 100}}
"""
TRAINING = {
    "kind": "dp-sgd",
    "noise-multiplier": Fraction(1),
    "sampling-rate": Fraction(1, 100),
    "steps": 1000,
}


@pytest.mark.parametrize("number", DEFAULTS)
def test_a_recorded_policy_charges_by_the_rules_of_its_defaults(number: int) -> None:
    """The canary charges by the newest rules, and differs for the third defaults."""
    sources = (("policy.yaml", POLICY),)
    event = PolicyApplied("", "", "", "", sources, (), number)
    enforced = enforce(compile_recorded_policy(event), (renyi(2),))
    (user,) = enforced.policy.units.values()
    mechanism, _ = parse_mechanism(TRAINING)
    assert mechanism is not None
    stated = NeighbouringRelation.ADD_REMOVE
    request = MechanismRequest(
        "training", "dp-sgd", mechanism, "user", stated, False, {}, (), {}, (), None
    )
    statement = state_mechanism(request, user, stated, (), enforced.certificates)
    costs = enforced.mechanism_costs(statement)
    by_rules = {
        rules: cost_by_unit(
            mechanism, user, stated, GroupContext((user,), rules=rules), enforced.certificates
        )["user"]
        for rules in CostRules
    }
    assert costs[0, :-1].tolist() == list(by_rules[DEFAULTS[number].cost_rules].amounts)
    assert by_rules[CostRules.FIRST] != by_rules[CostRules.SECOND]


def as_unbounded(loss: Loss) -> Loss:
    """Return a loss that is infinite in every certificate with the δ-side of no bound."""
    return loss if any(amount is not None for amount in loss) else unbounded_loss(CERTIFICATES)


#: Kinds that cost less in some group, whatever the parameters.
TIGHTER = {"laplace", "randomized-response"}


@pytest.mark.parametrize("fields", MECHANISMS, ids=lambda fields: str(fields["kind"]))
@pytest.mark.parametrize("target", NeighbouringRelation)
def test_the_second_rules_never_charge_more(
    fields: dict[str, str | int], target: NeighbouringRelation
) -> None:
    """For all groups and units. The canary exchanges the two versions."""
    mechanism = parse_golden(fields)
    units = tuple(
        PrivacyUnit(str(text), "user", parse_period(text) if text else None, target)
        for text in PERIODS
    )
    pairs = []
    for relation in NeighbouringRelation:
        for k in SIZES:
            pairs.append([cost(mechanism, k, relation, CERTIFICATES, rules) for rules in CostRules])
        for unit in (units[1], units[4]):
            before, after = (
                cost_by_unit(
                    mechanism, unit, relation, GroupContext(units, rules=rules), CERTIFICATES
                )
                for rules in CostRules
            )
            pairs += [[before[name], after[name]] for name in before]
    pairs = [[as_unbounded(loss) for loss in pair] for pair in pairs]
    assert all(is_at_most(second, first) for first, second in pairs)
    if fields["kind"] in TIGHTER:
        assert not all(is_at_most(first, second) for first, second in pairs)
