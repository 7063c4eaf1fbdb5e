"""Commands on many releases, executed as the only writer in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpolicy.errors import (
    DPolicyError,
    InvariantBroken,
    LedgerDamaged,
    LedgerUnavailable,
)
from dpolicy.pdp.commands import (
    ANY_POLICY,
    ExpectedPolicy,
    RecordedAnswer,
    decide_request,
    ensure_policy,
)
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.plans.planned_requests import PlannedRequest

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
