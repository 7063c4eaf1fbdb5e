"""Pruning changes no decision, from the text of a policy to the decision; fixed seeds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from tests.properties.broken_orders import collapse_ignored, partitions_ignored, relation_ignored
from tests.properties.policy_replay import (
    compare_decisions,
    compile_dict,
    with_order,
    without_pruning,
)
from tests.properties.pruning_harness import Arranger
from tests.properties.targeted_policies import (
    PolicyDict,
    Story,
    change_rules,
    random_policy,
    random_story,
)

from dpolicy.balances.enforced_policy import enforce
from dpolicy.rules import tightening
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.policy_diff import diff_policies
from dpolicy.rules.scope_order import ScopeComparer
from dpolicy.rules.tightening import only_tightens

POLICIES, STORIES, TIGHTENED_POLICIES = 200, 2, 120
#: Number of policies with a different decision that detect a canary.
DETECTIONS = 3
CANARIES: dict[str, Arranger] = {
    "P6 relation": relation_ignored,
    "P8 partitions": partitions_ignored,
    "P9 collapse": collapse_ignored,
}


def cases(count: int) -> Iterator[tuple[Random, PolicyDict, CompiledPolicy, list[Story]]]:
    """Yield random policies with their stories, the same ones in every run."""
    for seed in range(count):
        random = Random(seed)
        policy = random_policy(random)
        stories = [random_story(random, policy) for _ in range(STORIES)]
        yield random, policy, compile_dict(policy), stories


def count_differences(first: CompiledPolicy, second: CompiledPolicy, stories: list[Story]) -> int:
    """Return how many releases the two policies decide differently."""
    pair = enforce(first), enforce(second)
    return sum(a != b for story in stories for a, b in compare_decisions(*pair, story))


def test_pruning_changes_no_decision() -> None:
    pruned, decisions = 0, []
    for _, policy, compiled, stories in cases(POLICIES):
        if compiled.kept_count == compiled.rule_count:
            continue
        pruned += compiled.rule_count - compiled.kept_count
        pair = enforce(without_pruning(compiled)), enforce(compiled)
        for story in stories:
            compared = compare_decisions(*pair, story)
            assert all(a == b for a, b in compared), (policy, story)
            decisions += [a for a, _ in compared]
    assert pruned > POLICIES / 2
    assert 1 / 3 < sum(decisions) / len(decisions) < 1 / 2


@pytest.mark.parametrize("name", CANARIES)
def test_decisions_detect_an_omitted_condition(name: str) -> None:
    detections, comparer = 0, None
    for _, _, compiled, stories in cases(POLICIES):
        comparer = comparer or ScopeComparer(compiled.schema)
        broken = with_order(compiled, CANARIES[name], comparer)
        if broken.kept_count < compiled.kept_count:
            detections += count_differences(without_pruning(compiled), broken, stories) > 0
        if detections == DETECTIONS:
            return
    pytest.fail(f"{detections} of {POLICIES} policies detect the omitted condition {name}")


def test_what_only_tightens_allows_nothing_more() -> None:
    tightened = denied = by_meaning = 0
    for random, policy, old, stories in cases(TIGHTENED_POLICIES):
        new = compile_dict(change_rules(random, policy))
        if not only_tightens(old, new):
            continue
        pair = enforce(old), enforce(new)
        tightened += 1
        kinds = {change.kind for change in diff_policies(old, new)}
        by_meaning += not kinds <= {"tightened", "added"}
        for story in stories:
            compared = compare_decisions(*pair, story)
            assert all(a or not b for a, b in compared), (policy, new.sources[0].text, story)
            denied += sum(a and not b for a, b in compared)
    assert tightened > TIGHTENED_POLICIES / 4 and denied > tightened / 4
    assert by_meaning > tightened / 10


@pytest.mark.parametrize("condition", ["_contains_scope", "_keeps_units"])
def test_a_tightening_without_a_condition_allows_more(
    condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary of the comparison above: it detects an omitted condition on scopes or units."""
    monkeypatch.setattr(tightening._Comparison, condition, lambda *_: True)
    for random, policy, old, stories in cases(POLICIES):
        new = compile_dict(change_rules(random, policy))
        if only_tightens(old, new):
            pair = enforce(old), enforce(new)
            if any(b > a for story in stories for a, b in compare_decisions(*pair, story)):
                return
    pytest.fail(f"no policy detects the omitted condition {condition}")


def test_an_added_rule_loosens_if_the_order_ignores_collapse() -> None:
    """A canary of the comparison above: a policy that `only_tightens` accepts allows more."""
    detections, comparer = 0, None
    for random, policy, old, stories in cases(POLICIES):
        comparer = comparer or ScopeComparer(old.schema)
        new = compile_dict(change_rules(random, policy))
        broken = with_order(new, collapse_ignored, comparer)
        if broken.kept_count == new.kept_count or not only_tightens(old, new):
            continue
        pair = enforce(old), enforce(broken)
        detections += any(b > a for story in stories for a, b in compare_decisions(*pair, story))
    assert detections
