"""Commands on many releases, executed as the only writer in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    InvariantBroken,
    LedgerDamaged,
    LedgerUnavailable,
    ReleaseRejected,
)
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.commands import (
    ANY_POLICY,
    ExpectedPolicy,
    RecordedAnswer,
    decide_request,
    ensure_policy,
    import_release,
)
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.plans.planned_requests import PlannedRequest
from dpolicy.pdp.request_evaluation import ensure_not_pending, id_taken_error
from dpolicy.releases.release import Release

#: Errors that concern the ledger and not only one release.
LEDGER_ERRORS = (InvariantBroken, LedgerDamaged, LedgerUnavailable)


class Submission(NamedTuple):
    """Prepared release, who submits it, and the policy under which it was authorized."""

    request: PlannedRequest
    by: str
    expected_policy: ExpectedPolicy


def decide_or_reject(
    log: WriteTransaction,
    request: PlannedRequest,
    by: str,
    expected_policy: ExpectedPolicy = ANY_POLICY,
) -> RecordedAnswer | DPolicyError:
    """Decide a release; return the error of a release that cannot be decided.

    Raise an error that concerns the ledger and not only this release, and an error after which the
    release has a record.
    """
    before = len(log.added)
    try:
        ensure_policy(log.state, expected_policy)
        return decide_request(log, request, by, reserve=False)
    except LEDGER_ERRORS:
        raise
    except DPolicyError as error:
        if len(log.added) != before:
            raise
        return error


def split_by_weight(
    requests: Sequence[PlannedRequest | DPolicyError], limit: int
) -> Iterator[slice]:
    """Yield the parts of a sequence of requests that weigh at most `limit`, or have one request.

    Each part is one commit, so that the requests of others are decided in between.
    """
    start = weight = 0
    for number, request in enumerate(requests):
        own = request.weight if isinstance(request, PlannedRequest) else 1
        if number > start and weight + own > limit:
            yield slice(start, number)
            start, weight = number, 0
        weight += own
    if requests:
        yield slice(start, len(requests))


def import_releases(
    log: WriteTransaction, releases: Sequence[Release], because: str, by: str
) -> list[int]:
    """Import releases; return their record numbers.

    Raise before the first record is written; `ReleaseRejected` has the problems of all releases.
    """
    first: dict[str, Release] = {}
    problems: list[InvalidValue] = []
    for release in releases:
        if not _repeats(release, first.setdefault(release.id, release)):
            raise id_taken_error(log.state, release.id)
        try:
            _check_import(log, release, because, by)
        except ReleaseRejected as error:
            problems += error.for_release(release.id).problems
    if problems:
        raise ReleaseRejected(problems)
    return [import_release(log, release, because, by) for release in releases]


def _repeats(release: Release, first: Release) -> bool:
    """Return whether a release is the same request as the first one with its id."""
    bodies = [encode_canonical({**item.body, "by": ""}) for item in (release, first)]
    return release.by in ("", first.by) and bodies[0] == bodies[1]


def _check_import(log: WriteTransaction, release: Release, because: str, by: str) -> None:
    """Raise the error with which an import would fail. Write nothing."""
    if release.id in log.state.entries:
        import_release(log, release, because, by)  # returns the record of an earlier import
        return
    ensure_not_pending(log.state, release.id)
    if log.state.enforced is not None:
        resolve_or_reject(release, log.state.enforced)
