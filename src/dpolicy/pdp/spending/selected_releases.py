"""Selected releases: the charged releases of a question's authors and dates, by charge group."""

from __future__ import annotations

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
    """Numbers of charged releases by charge group; `dated` has the ids where a date selects."""

    state: LedgerState
    counts: NDArray[np.int64]
    dated: Mapping[int, tuple[str, ...]]

    def ids(self, group: int) -> tuple[str, ...]:
        """Return the ids of the selected releases of a group, in ledger order."""
        return self.dated[group] if group in self.dated else _charged_ids(self.state, group)


def select_releases(
    state: LedgerState, question: SpendingQuestion, day_of_request: DayOfRequest
) -> SelectedReleases:
    """Select the charged releases by the authors and the first day of a question.

    A reserved, committed, expired or imported release is charged; a denied or voided one is not.
    """
    groups, authors, since = state.charge_groups, question.authors, question.since
    counts = np.fromiter((group.count for group in groups), np.int64, len(groups))
    if authors is not None:
        counts *= np.fromiter((group.by in authors for group in groups), np.bool_, len(groups))
    if since is None:
        return SelectedReleases(state, counts, {})
    # The month of a group is not before the month of its releases.
    first_month = date.fromordinal(since).replace(day=1).toordinal()
    counts *= np.fromiter((group.month >= first_month for group in groups), np.bool_, len(groups))
    dated: dict[int, tuple[str, ...]] = {}
    for number in np.flatnonzero(counts).tolist():
        dated[number] = tuple(
            release
            for release in _charged_ids(state, number)
            if day_of_request(state.entries[release].request_record) >= since
        )
        counts[number] = len(dated[number])
    return SelectedReleases(state, counts, dated)


def _charged_ids(state: LedgerState, group: int) -> tuple[str, ...]:
    """Return the charged releases of a group; one that left it and came back counts once."""
    return tuple(dict.fromkeys(state.spending_releases(state.charge_groups[group])))
