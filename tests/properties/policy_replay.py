"""Decisions of two compilations of a policy on the same releases.

The replay uses the code of the decision point below the ledger: resolution, charges, balances,
collapse and the decision. The ledger compiles its policy from the recorded text, so it cannot run a
policy without pruning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from tests.properties.pruning_harness import Arranger
from tests.properties.targeted_policies import Body, PolicyDict, Story

from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.decide import charges_by_region, decide, match_mechanisms
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.policy.accounting.accounting_defaults import NEWEST_DEFAULTS, AccountingDefaults
from dpolicy.releases.body import release_from_body
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection, compile_policy
from dpolicy.rules.pruning import PruningResult, prune
from dpolicy.rules.rule_index import build_index
from dpolicy.rules.scope_order import ScopeComparer
from dpolicy.text.yaml_reader import Source


def compile_dict(
    policy: PolicyDict, defaults: AccountingDefaults = NEWEST_DEFAULTS
) -> CompiledPolicy:
    """Compile a policy."""
    return compile_policy([Source("policy.json", json.dumps(policy))], defaults)


def with_order(
    compiled: CompiledPolicy, arranger: Arranger, comparer: ScopeComparer
) -> CompiledPolicy:
    """Return the policy pruned by another order of the factors, as a canary needs it."""

    def prune_again(section: CompiledSection) -> CompiledSection:
        orders = arranger(section.rules, compiled.checked_policy_set, comparer)
        return _with_pruning(section, prune(section.rules, orders))

    return _with_sections(compiled, *map(prune_again, compiled.sections))


def without_pruning(compiled: CompiledPolicy) -> CompiledPolicy:
    """Return the policy with every rule kept."""

    def keep_all(section: CompiledSection) -> CompiledSection:
        numbers = np.arange(len(section.rules), dtype=np.int32)
        return _with_pruning(section, PruningResult(np.ones(len(numbers), dtype=bool), numbers))

    return _with_sections(compiled, *map(keep_all, compiled.sections))


def _with_pruning(section: CompiledSection, pruned: PruningResult) -> CompiledSection:
    return replace(section, pruning=pruned, index=build_index(section.rules, pruned))


def _with_sections(
    compiled: CompiledPolicy, cumulative: CompiledSection, each_release: CompiledSection
) -> CompiledPolicy:
    return replace(compiled, cumulative=cumulative, each_release=each_release)


@dataclass
class Replay:
    """A policy with the balances of the releases so far."""

    enforced: EnforcedPolicy
    balances: Balances

    @staticmethod
    def start(enforced: EnforcedPolicy) -> Replay:
        """Return a replay without releases."""
        return Replay(enforced, enforced.cumulative.empty_balances())

    def allows(self, body: Body, submitted: date) -> bool:
        """Decide a release; time is collapsed as of the month in which it is submitted."""
        today = submitted.replace(day=1).toordinal()
        self.balances.collapse_time(self.enforced.cumulative.granularities.cutoff(today))
        mechanisms = resolve_or_reject(release_from_body(body), self.enforced)
        return decide(self.enforced, self.balances, mechanisms, today).allowed

    def charge(self, body: Body, submitted: date) -> None:
        """Charge a release."""
        section, today = self.enforced.cumulative, submitted.replace(day=1).toordinal()
        mechanisms = resolve_or_reject(release_from_body(body), self.enforced)
        matches, errors = match_mechanisms(section, mechanisms)
        assert not errors
        for charge in charges_by_region(section, mechanisms, matches, today):
            self.balances.add(charge, 1)


def compare_decisions(
    first: EnforcedPolicy, second: EnforcedPolicy, story: Story
) -> list[tuple[bool, bool]]:
    """Decide each release by both policies; charge it to both if the first allows it."""
    replays = Replay.start(first), Replay.start(second)
    decisions = []
    for submitted, body in story:
        before, after = (replay.allows(body, submitted) for replay in replays)
        decisions.append((before, after))
        for replay in replays if before else ():
            replay.charge(body, submitted)
    return decisions
