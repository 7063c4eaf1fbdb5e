"""Content index: finds the charge group of a recorded release by its content."""

from __future__ import annotations

from typing import Any

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import LedgerDamaged
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import check_body, mechanism_bytes
from dpolicy.pdp.state.charge_groups import (
    NO_LEGACY_MEANING,
    PENDING_MEANINGS,
    ChargeGroup,
    complete_recorded,
)
from dpolicy.releases.meaning import check_meaning

#: Author, mechanisms, meaning and month of a charge group.
ContentKey = tuple[str, bytes, str, int]


class ContentIndex:
    """Numbers of the charge groups of a state by content. Mutable; owned by a `LedgerState`."""

    def __init__(self) -> None:
        self.numbers: dict[ContentKey, int] = {}
        #: Number of groups whose meaning is not completed yet.
        self.pending_count = 0
        self._legacy_meanings: dict[tuple[str, bytes], str] = {}

    def copy(self) -> ContentIndex:
        """Return an independent copy."""
        other = ContentIndex()
        other.numbers, other._legacy_meanings = dict(self.numbers), dict(self._legacy_meanings)
        other.pending_count = self.pending_count
        return other

    def rebuild(self, groups: list[ChargeGroup]) -> None:
        """Index groups by their present content."""
        chain, self.numbers, self.pending_count = 0, {}, 0
        for number, group in enumerate(groups):
            key = (group.by, group.mechanisms, group.meaning, group.month)
            chain = group.chain = hash((chain, key))
            self.numbers[key] = number
            self.pending_count += group.meaning in PENDING_MEANINGS

    def find_or_add(
        self,
        groups: list[ChargeGroup],
        event_fields: dict[str, Any],
        record: Record,
        month: int,
        enforced: EnforcedPolicy | None,
    ) -> int:
        """Return the number of the group of an event with a release body; add it if it is new.

        `enforced` is the active policy. Raise `LedgerDamaged` if the body or meaning is invalid.
        """
        body = event_fields["body"]
        if not isinstance(body, dict) or not isinstance(body.get("by", ""), str):
            raise LedgerDamaged("record has an invalid `body`")
        by, mechanisms = body.get("by", ""), mechanism_bytes(record.payload)
        meaning = event_fields.get("meaning")
        if meaning is None:
            check_body(body)
            meaning = self._legacy_meaning(enforced, by, mechanisms)
        key = (by, mechanisms, meaning, month)
        number = self.numbers.get(key)
        if number is None:
            check_body(body)
            if meaning not in PENDING_MEANINGS:
                check_meaning(meaning, body)
            number = self.find_or_add_key(groups, key)
        return number

    def find_or_add_key(self, groups: list[ChargeGroup], key: ContentKey) -> int:
        """Return the number of the group of a valid content; add it if it is new."""
        number = self.numbers.setdefault(key, len(groups))
        if number == len(groups):
            chain = hash((groups[-1].chain if groups else 0, key))
            groups.append(ChargeGroup(*key, number=number, chain=chain))
            self.pending_count += key[2] in PENDING_MEANINGS
        return number

    def change_policy(self, groups: list[ChargeGroup], enforced: EnforcedPolicy) -> None:
        """Let the first policy complete the releases that were recorded before it."""
        self._legacy_meanings = {}
        if self.pending_count:
            for group in groups:
                if group.meaning in PENDING_MEANINGS:
                    group.meaning = complete_recorded(
                        enforced, group.by, group.mechanisms, group.meaning
                    )
            self.rebuild(groups)

    def _legacy_meaning(self, enforced: EnforcedPolicy | None, by: str, mechanisms: bytes) -> str:
        """Return the meaning of a record of format 1 or 2 under the policy that was active."""
        if enforced is None:
            return NO_LEGACY_MEANING
        key = (by, mechanisms)
        if key not in self._legacy_meanings:
            self._legacy_meanings[key] = complete_recorded(
                enforced, by, mechanisms, NO_LEGACY_MEANING
            )
        return self._legacy_meanings[key]
