"""Totals that were computed for a policy before its record exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import PolicyApplied, from_bytes
from dpolicy.pdp.state.charge_groups import ChargeGroup, SpendingTotals


@dataclass(frozen=True, slots=True)
class OfferedTotals:
    """Totals of a policy, for the fold of the record that applies it.

    `sources` and `defaults` are those from which the policy was compiled. The totals charge the
    records up to `sequence`, which have `group_count` charge groups; `chain` is that of the last.
    """

    totals: SpendingTotals
    sources: tuple[tuple[str, str], ...]
    defaults: int | None
    sequence: int
    group_count: int
    chain: int

    def fit(self, record: Record, groups: Sequence[ChargeGroup]) -> bool:
        """Return whether a record applies the policy of the totals, and the groups are theirs."""
        event = from_bytes(record.payload)
        if not isinstance(event, PolicyApplied):
            return False
        is_same_policy = (event.sources, event.defaults) == (self.sources, self.defaults)
        return is_same_policy and self.fit_groups(groups)

    def fit_groups(self, groups: Sequence[ChargeGroup]) -> bool:
        """Return whether the groups of a state have the contents and numbers of the totals."""
        if self.group_count > len(groups):
            return False
        return not self.group_count or groups[self.group_count - 1].chain == self.chain

    def give_policy(self, _record: Record) -> EnforcedPolicy:
        """Return the policy of the totals, instead of compiling that of a record."""
        return self.totals.enforced
