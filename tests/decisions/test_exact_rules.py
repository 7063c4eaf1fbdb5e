"""Per-release rules decided by loss distributions, under the accounting defaults 3."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from tests.reference.exact_blocks import holds_at_every_point

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.cli.output.decision_text import reason_text
from dpolicy.decisions.counter_offers import find_counter_offers
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.decisions.filter_costs import filter_costs
from dpolicy.decisions.reasons import reasons_for
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.policy.accounting.accounting_defaults import (
    FIRST_DEFAULTS,
    NEWEST_DEFAULTS,
    SECOND_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.privacy.loss_distribution.certified_epsilon import certified_epsilon
from dpolicy.privacy.loss_distribution.loss_run import loss_run
from dpolicy.privacy.mechanisms.gaussian import DpSgd
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

TEXT = """
dpolicy: 1
accounting: {{delta: 1e-5{more}}}
units: {{user: {{}}, user-day: {{period: day}}}}
schema:
  attributes: {{zip: {{risk: high}}, views: {{risk: low}}}}
  partitions: {{country: {{values: [AT, CH, DE]}}}}
policies:
  - {{name: all, kind: custom, when: always, unit: user, budget: unlimited}}
each-release:
  - {{name: one, kind: custom, when: always, unit: {unit}, budget: {budget}}}
"""

#: The trainings of which a budget of (1, 1e-5) has room for all: noise, rate and steps. Thresholds
#: admit none of them.
TRAININGS = [
    ("1", "0.001", 10_000),
    ("1", "0.01", 200),
    ("1.1", "0.004267", 1000),
]


def policy(
    budget: str = "{epsilon: 1}",
    defaults: AccountingDefaults = NEWEST_DEFAULTS,
    unit: str = "user",
    more: str = "",
) -> EnforcedPolicy:
    text = TEXT.format(budget=budget, unit=unit, more=more)
    return enforce(compile_policy([Source("policy.yaml", text)], defaults))


def training(noise: str, rate: str, steps: int) -> dict[str, Any]:
    return {
        "kind": "dp-sgd",
        "noise-multiplier": Fraction(noise),
        "sampling-rate": Fraction(rate),
        "steps": steps,
    }


def declared(**parameters: str) -> dict[str, Any]:
    return {"kind": "declared", **{name: Fraction(value) for name, value in parameters.items()}}


def body(*mechanisms: dict[str, Any], **more: Any) -> dict[str, Any]:
    requests = [{"mechanism": m, "attributes": ["zip"], "unit": "user", **more} for m in mechanisms]
    return {"release": "r", "mechanisms": requests}


def verdict(enforced: EnforcedPolicy, content: dict[str, Any]) -> Verdict:
    return decide(enforced, None, resolve_or_reject(release_from_body(content), enforced))


@pytest.mark.parametrize(("noise", "rate", "steps"), TRAININGS)
def test_trainings_fit_a_rule_for_each_release(noise: str, rate: str, steps: int) -> None:
    content = body(training(noise, rate, steps))
    exact = verdict(policy(), content)
    assert exact.allowed
    (reason, *_) = reasons_for(exact)
    run = loss_run(
        DpSgd(Fraction(noise), steps, sampling_rate=Fraction(rate)),
        1,
        NeighbouringRelation.ADD_REMOVE,
    )
    assert run is not None
    epsilon = certified_epsilon([run], Fraction("1e-5"))
    assert (reason.method, reason.holds, reason.binding) == ("loss distribution", True, "epsilon")
    assert reason.cost["epsilon"] == reason.after["epsilon"] == float(epsilon or 0)
    assert "exact (loss distribution)" in reason_text(reason)
    for older in (FIRST_DEFAULTS, SECOND_DEFAULTS):
        old = verdict(policy(defaults=older), content)
        assert not old.allowed, "an older ledger keeps its thresholds"
        assert all(not reason.method for reason in reasons_for(old))


def test_thresholds_admit_one_step_and_loss_distributions_are_not_needed() -> None:
    """The thresholds of older defaults deny it, although 10,000 such steps have ε 0.476."""
    content = body(training("1", "0.001", 1))
    newest = verdict(policy(), content)
    assert newest.allowed and all(not reason.method for reason in reasons_for(newest))
    for older in (FIRST_DEFAULTS, SECOND_DEFAULTS):
        assert not verdict(policy(defaults=older), content).allowed
    exact = verdict(policy(more=", profile: classic"), content)
    assert exact.allowed and reasons_for(exact)[0].method == "loss distribution"


def test_a_denied_release_shows_the_smaller_epsilon() -> None:
    denied = verdict(policy(), body(training("1", "0.01", 1000)))
    (reason,) = reasons_for(denied)
    assert not denied.allowed
    assert reason.method
    assert reason.after["epsilon"] == pytest.approx(1.8284, rel=1e-3)
    assert "exceeds" in reason_text(reason)
    assert filter_costs(denied)[0].as_json()["method"] == "loss distribution"


def test_thresholds_decide_where_they_hold() -> None:
    allowed = verdict(policy(), body(declared(epsilon="1")))
    assert allowed.allowed
    assert all(not reason.method for reason in reasons_for(allowed))


def test_kinds_without_a_distribution_keep_the_thresholds() -> None:
    assert not verdict(policy(), body(declared(rho="0.02"), declared(epsilon="0.2"))).allowed
    assert verdict(policy(), body(declared(mu="0.1"), declared(epsilon="0.2"))).allowed


def test_stated_leaks_are_part_of_delta() -> None:
    """The thresholds keep 7 % of δ for leaks; the certified ε counts them against all of δ."""
    leaky = body(declared(epsilon="0.5", delta="9e-6"))
    assert not verdict(policy(defaults=SECOND_DEFAULTS), leaky).allowed
    allowed = verdict(policy(), leaky)
    assert allowed.allowed
    reason = reasons_for(allowed)[0]
    assert reason.leaks == {"limit": 1e-5}
    assert reason.after["delta"] == 9e-6
    assert not verdict(policy(), body(*[declared(epsilon="0.1", delta="6e-6")] * 2)).allowed


def test_cumulative_rules_are_not_exact() -> None:
    """An adaptive sequence can exceed an exact composition: docs/theory/filters.md."""
    for section in policy().policy.sections:
        for rule in section.rules:
            assert (rule.bound.exact is not None) == rule.each_release


def random_content(source: Random) -> dict[str, Any]:
    requests = []
    for _ in range(source.randint(1, 4)):
        parameters = source.choice(
            [
                {**declared(epsilon=source.choice(["0.02", "0.05"])), "count": 60},
                declared(epsilon="0.3"),
                declared(epsilon="0.1", delta="3e-6"),
                {"kind": "gaussian", "sigma": Fraction(source.choice([5, 7, 10]))},
                {"kind": "laplace", "scale": Fraction(40), "count": source.choice([5, 60])},
            ]
        )
        request: dict[str, Any] = {"mechanism": parameters, "attributes": ["zip"], "unit": "user"}
        if source.random() < 0.7:
            countries = source.sample(["AT", "CH", "DE"], source.randint(1, 2))
            request["where"] = [{"country": countries}]
        requests.append(request)
    return {"release": "r", "mechanisms": requests}


def test_blocks_are_decided_like_points() -> None:
    enforced, source = policy(), Random(3)
    days = range(date(2024, 1, 1).toordinal(), date(2024, 1, 2).toordinal())
    decisions, exact = [], 0
    for _ in range(80):
        content = random_content(source)
        mechanisms = resolve_or_reject(release_from_body(content), enforced)
        decided = decide(enforced, None, mechanisms)
        expected = holds_at_every_point(enforced, mechanisms, 0, days)
        assert decided.allowed == expected, content
        decisions.append(expected)
        exact += bool(decided.checks[0].exact)
    assert 20 < sum(decisions) < 60
    assert exact > 20


def test_the_reported_place_has_the_largest_certified_epsilon() -> None:
    parts = [("AT", "0.5"), ("CH", "0.7"), ("CH", "0.8"), ("DE", "0.1")]
    content = body(*(declared(epsilon=epsilon) for _, epsilon in parts))
    for request, (country, _) in zip(content["mechanisms"], parts, strict=True):
        request["where"] = [{"country": [country]}]
    (reason,) = reasons_for(verdict(policy(), content))
    assert reason.location == {"country": "CH"}
    assert reason.after["epsilon"] == pytest.approx(1.5, rel=1e-4)


def test_counter_offers_use_the_loss_distribution() -> None:
    enforced, content = policy(), body(training("0.9", "0.01", 200))
    denied = verdict(enforced, content)
    assert not denied.allowed
    empty = enforced.cumulative.empty_balances()
    (offer, *_) = find_counter_offers(enforced, empty, 0, content, denied)
    assert offer["change"] == "scale every noise parameter by"
    assert 1 < offer["factor"] < 1.1, "the thresholds alone need more noise"


def test_a_smaller_unit_and_a_group_have_their_own_runs() -> None:
    """A statement for a day reaches the user only through a group, which has no distribution."""
    enforced = policy()
    mechanisms = resolve_or_reject(
        release_from_body(
            body({"kind": "discrete-gaussian", "sigma": Fraction(9)}, unit="user-day")
        ),
        enforced,
    )
    user, day = enforced.mechanism_runs(mechanisms[0].statement)
    assert day and not user
