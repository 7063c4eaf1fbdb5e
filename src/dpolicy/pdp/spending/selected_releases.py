"""Selected releases: the charged releases of a question's authors and dates, by charge group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from dpolicy.pdp.spending.question import SpendingQuestion
from dpolicy.pdp.state.ledger_state import LedgerState

#: Returns the day of a release, as an ordinal, given the record of its request.
DayOfRequest = Callable[[int], int]


@dataclass(frozen=True, slots=True, eq=False)
class SelectedReleases:
    """Numbers of charged releases by charge group; `listed` has the ids where not all count.

    `authors` are the authors that are recorded beside releases that name none.
    """

    state: LedgerState
    counts: NDArray[np.int64]
    listed: Mapping[int, tuple[str, ...]]
    authors: Mapping[str, str]

    def ids(self, group: int) -> tuple[str, ...]:
        """Return the ids of the selected releases of a group, in ledger order."""
        return self.listed[group] if group in self.listed else _charged_ids(self.state, group)

    def author(self, release: str, group: int) -> str:
        """Return the author of a selected release of a group; empty if it is not known."""
        return self.state.charge_groups[group].by or self.authors.get(release, "")

    def count_by_author(self, group: int) -> Mapping[str, int]:
        """Return the authors of the selected releases of a group, with their numbers."""
        by = self.state.charge_groups[group].by
        if by or not self.authors:
            return {by: int(self.counts[group])}
        return Counter(self.author(release, group) for release in self.ids(group))


def select_releases(
    state: LedgerState,
    question: SpendingQuestion,
    day_of_request: DayOfRequest,
    authors_beside: Mapping[int, str],
) -> SelectedReleases:
    """Select the charged releases by the authors and the first day of a question.

    A reserved, committed, expired or imported release is charged; a denied or voided one is not.
    """
    groups, wanted, since = state.charge_groups, question.authors, question.since
    counts = np.fromiter((group.count for group in groups), np.int64, len(groups))
    authors = _find_authors_beside(state, authors_beside)
    listed: dict[int, tuple[str, ...]] = {}
    if wanted is not None:
        for number in np.flatnonzero(counts).tolist():
            if authors and not groups[number].by:
                ids = _charged_ids(state, number)
                listed[number] = tuple(release for release in ids if authors[release] in wanted)
                counts[number] = len(listed[number])
            elif groups[number].by not in wanted:
                counts[number] = 0
    if since is None:
        return SelectedReleases(state, counts, listed, authors)
    # The month of a group is not before the month of its releases.
    first_month = date.fromordinal(since).replace(day=1).toordinal()
    counts *= np.fromiter((group.month >= first_month for group in groups), np.bool_, len(groups))
    for number in np.flatnonzero(counts).tolist():
        listed[number] = tuple(
            release
            for release in listed.get(number) or _charged_ids(state, number)
            if day_of_request(state.entries[release].request_record) >= since
        )
        counts[number] = len(listed[number])
    return SelectedReleases(state, counts, listed, authors)


def _find_authors_beside(
    state: LedgerState, authors_beside: Mapping[int, str]
) -> Mapping[str, str]:
    """Return the author of each charged release that names none; nothing if no record has one."""
    if not authors_beside:
        return {}
    return {
        release: authors_beside.get(state.entries[release].request_record, "")
        for group in state.charge_groups
        if group.count and not group.by
        for release in _charged_ids(state, group.number)
    }


def _charged_ids(state: LedgerState, group: int) -> tuple[str, ...]:
    """Return the charged releases of a group; one that left it and came back counts once."""
    return tuple(dict.fromkeys(state.spending_releases(state.charge_groups[group])))
