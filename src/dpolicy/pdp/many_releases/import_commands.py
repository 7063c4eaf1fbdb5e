"""Commands that record past releases, executed under the write lock.

A past release is charged regardless of the budgets. The day on which it happened is information for
people; the charge does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from types import MappingProxyType

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import InvalidValue, OperationRejected, ReleaseRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import ReleaseImported, release_day
from dpolicy.pdp.commands import meaning_text
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.request_evaluation import (
    ensure_not_pending,
    id_taken_error,
    is_same_request,
    is_written_out,
)
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES, ReleaseEntry
from dpolicy.releases.release import Release

#: Days by the ids of releases, if no day is known.
NO_DAYS: Mapping[str, str] = MappingProxyType({})


def import_releases(
    log: WriteTransaction,
    releases: Sequence[Release],
    because: str,
    by: str,
    released: Mapping[str, str] = NO_DAYS,
) -> list[int]:
    """Import releases; return their record numbers. `released` has days by the ids of releases.

    Raise before the first record is written; `ReleaseRejected` has the problems of all releases.
    """
    first: dict[str, Release] = {}
    problems: list[InvalidValue] = []
    for release in releases:
        if not _repeats(release, first.setdefault(release.id, release)):
            raise id_taken_error(log.state, release.id)
        try:
            _check_import(log, release, released.get(release.id))
        except ReleaseRejected as error:
            problems += error.for_release(release.id).problems
    if problems:
        raise ReleaseRejected(problems)
    return [
        import_release(log, release, because, by, released.get(release.id)) for release in releases
    ]


def import_release(
    log: WriteTransaction, release: Release, because: str, by: str, released: str | None = None
) -> int:
    """Charge a release that has already happened; a repeated import returns its record.

    An exported release, which has everything written out, is the release that it was exported from.
    `released` is the day on which it happened, or None.
    """
    _check_import(log, release, released)
    entry = log.state.entries.get(release.id)
    if entry is not None:
        return entry.request_record
    author, meaning = by or release.by, meaning_text(log.state, release)
    return log.append(
        ReleaseImported(log.timestamp, author, because, release.id, release.body, meaning, released)
    )


def _repeats(release: Release, first: Release) -> bool:
    """Return whether a release is the same request as the first one with its id."""
    bodies = [encode_canonical({**item.body, "by": ""}) for item in (release, first)]
    return release.by in ("", first.by) and bodies[0] == bodies[1]


def _check_import(log: WriteTransaction, release: Release, released: str | None) -> None:
    """Raise the error with which an import would fail. Write nothing."""
    ensure_past_day(released, log.timestamp)
    entry = log.state.entries.get(release.id)
    if entry is not None:
        _ensure_same_release(log, entry, release, released)
        return
    ensure_not_pending(log.state, release.id)
    if log.state.enforced is not None:
        resolve_or_reject(release, log.state.enforced)


def _ensure_same_release(
    log: WriteTransaction, entry: ReleaseEntry, release: Release, released: str | None
) -> None:
    """Raise `OperationRejected` unless an entry is the charged record of a release."""
    recorded = log.event(entry.request_record)
    is_recorded = is_same_request(recorded, release) or is_written_out(
        log.state, entry, log.event(entry.charge_record), release.body
    )
    if not is_recorded:
        raise id_taken_error(log.state, release.id)
    if entry.status not in SPENDING_STATUSES:
        raise OperationRejected(
            f"release `{release.id}` was {entry.status}; import it under another id"
        )
    if released not in (None, release_day(recorded)):
        message = f"release `{release.id}` is recorded with the date {release_day(recorded)}"
        raise OperationRejected(f"{message}, not {released}", "id-taken")


def ensure_past_day(released: str | None, timestamp: str) -> None:
    """Raise `OperationRejected` if a day is after the time of a record.

    The next day is accepted: the record is in UTC, and the day in the time zone of its author.
    """
    if released is None:
        return
    latest = date.fromisoformat(timestamp[:10]).toordinal() + 1
    if date.fromisoformat(released).toordinal() > latest:
        raise OperationRejected(f"the date {released} of a past release is in the future")
