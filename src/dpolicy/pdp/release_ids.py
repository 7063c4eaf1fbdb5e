"""Ids of releases: which are used, and an unused one for a changed release.

An id is used for good, also by a denied release.
"""

from __future__ import annotations

from dpolicy.errors import OperationRejected
from dpolicy.pdp.ledger_state import LedgerState

#: Largest number of characters of an id.
MAX_ID_LENGTH = 100


def is_id_used(state: LedgerState, release: str) -> bool:
    """Return whether the ledger has a release or a proposal of this id."""
    return release in state.entries or state.newest_proposal("release", release) is not None


def suggest_id(state: LedgerState, release: str) -> str:
    """Return an unused id for a changed release: `name-2`, or the next number."""
    base, dash, number = release.rpartition("-")
    if not (dash and number.isdecimal() and is_id_used(state, base)):
        base = release
    counter = 2
    while is_id_used(state, candidate := f"{_shorten(base, counter)}-{counter}"):
        counter += 1
    return candidate


def _shorten(base: str, counter: int) -> str:
    """Return the start of an id that leaves room for a number; it ends in a letter or digit."""
    return base[: MAX_ID_LENGTH - 1 - len(str(counter))].rstrip(" -.:/")


def id_taken_error(state: LedgerState, release: str) -> OperationRejected:
    """Return the error for an id that another release has, with an unused id."""
    return OperationRejected(
        f"the id `{release}` was used for another release; "
        f"help: choose a new id, for example `{suggest_id(state, release)}`",
        "id-taken",
    )
