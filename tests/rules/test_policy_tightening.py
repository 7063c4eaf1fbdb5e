"""`only_tightens` accepts only policy changes that can never allow more."""

from __future__ import annotations

import pytest
from tests.pdp.builders import GLOBAL, HEAD, ZIP, policy, pure, started

from dpolicy.rules.policy_diff import only_tightens

ZIPS = ZIP % "{epsilon: 1}"
CAP = "  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 1}}\n"

TIGHTER = {
    "the same": (policy(GLOBAL), policy(GLOBAL)),
    "a smaller budget": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "epsilon: 1"))),
    "an additional rule": (policy(GLOBAL), policy(GLOBAL, ZIPS)),
    "an additional per-release rule": (policy(GLOBAL), policy(GLOBAL, each=CAP)),
    "another order": (policy(GLOBAL, ZIPS), policy(ZIPS, GLOBAL)),
}
LOOSER = {
    "the first policy": (None, policy(GLOBAL)),
    "a larger budget": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "epsilon: 3"))),
    "a removed rule": (policy(GLOBAL, ZIPS), policy(GLOBAL)),
    "a narrower scope": (
        policy(GLOBAL),
        policy(GLOBAL.replace("always", "'mechanism == \"pate\"'")),
    ),
    "another notion": (policy(GLOBAL), policy(GLOBAL.replace("epsilon: 2", "rho: 0.5"))),
    "the first rule that covers other releases": (policy(ZIPS), policy(ZIPS, GLOBAL)),
    "a removed per-release rule": (policy(GLOBAL, each=CAP), policy(GLOBAL)),
    "another accounting": (
        policy(GLOBAL),
        policy(GLOBAL, head=HEAD.replace("delta: 1e-7", "delta: 1e-6")),
    ),
    "an additional partition": (
        policy(GLOBAL),
        policy(GLOBAL, head=HEAD + "    device: {values: [mobile, desktop]}\n"),
    ),
    "an additional attribute": (
        policy(GLOBAL),
        policy(GLOBAL, head=HEAD.replace("zip: {risk: high}", "zip: {risk: high}, a: {risk: low}")),
    ),
}


@pytest.mark.parametrize("name", TIGHTER)
def test_a_tightening_is_accepted(name: str) -> None:
    old, new = TIGHTER[name]
    assert only_tightens(old, new)


@pytest.mark.parametrize("name", LOOSER)
def test_any_other_change_is_not_a_tightening(name: str) -> None:
    old, new = LOOSER[name]
    assert not only_tightens(old, new)


def test_an_additional_rule_can_allow_an_uncovered_release() -> None:
    """A new rule can cover a release that was uncovered before, so it is not tighter."""
    assert not started(ZIPS).check(pure("a", "0.5", "views")).allowed
    assert started(ZIPS, GLOBAL).check(pure("a", "0.5", "views")).allowed
