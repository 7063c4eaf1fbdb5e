"""Recent changes: the charge groups whose count the newest records changed."""

from __future__ import annotations

from collections import deque

#: Largest number of changes that are kept.
MAX_CHANGES = 65_536


class RecentChanges:
    """Numbers of changed charge groups, by record. Mutable; owned by a `LedgerState`.

    It knows the changes of all records after `start`, unless there are more than `MAX_CHANGES`.
    """

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._changes: deque[tuple[int, int]] = deque(maxlen=MAX_CHANGES)

    def copy(self) -> RecentChanges:
        """Return an independent copy."""
        other = RecentChanges(self._start)
        other._changes = self._changes.copy()
        return other

    def append(self, sequence: int, group: int) -> None:
        """Note that a record changes the count of a group."""
        self._changes.append((sequence, group))

    def find_after(self, sequence: int) -> set[int] | None:
        """Return the groups that records after a number changed; None if that is not known."""
        changes = self._changes
        is_full = len(changes) == MAX_CHANGES and changes[0][0] > sequence
        if sequence < self._start or is_full:
            return None
        groups: set[int] = set()
        for number, group in reversed(changes):
            if number <= sequence:
                break
            groups.add(group)
        return groups
