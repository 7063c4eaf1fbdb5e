"""Authors of releases: who asks, as an argument of a request and as `by` of its release.

Rules read `by` of the release. An argument fills it if the release states no author, so that rules
and records name the same author.
"""

from __future__ import annotations

from dpolicy.errors import ReleaseRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import Event, release_body_in
from dpolicy.releases.body import Body
from dpolicy.releases.problem_codes import author_problem
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_with_author


def fill_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author if it states none.

    Raise `PolicyRejected` if `by` is not a valid name.
    """
    return release if release.by or not by else release_with_author(release, by)


def require_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author; an empty `by` keeps the stated author.

    Raise `ReleaseRejected` (R009) if the release states another author, and `PolicyRejected` if
    `by` is not a valid name.
    """
    if by and release.by not in ("", by):
        raise ReleaseRejected([author_problem(release.by, by)])
    return fill_author(release, by)


def fill_body_author(body: Body, by: str) -> Body:
    """Return the body of a release with `by` as its author if it states none.

    Raise `ReleaseRejected` (R009) if it states another author.
    """
    stated = body.get("by", "")
    if by and stated not in ("", by):
        raise ReleaseRejected([author_problem(stated, by)])
    return {**body, "by": by} if by and not stated else body


def is_same_request(event: Event, release: Release) -> bool:
    """Return whether a release is the one that an event records.

    A request that names no author repeats the request of any author. Before version 0.3 an author
    that was only an argument was recorded beside the body.
    """
    recorded = release_body_in(event)
    authors = ("", recorded.get("by") or event.by)
    return release.by in authors and _encode_without_author(recorded) == _encode_without_author(
        release.body
    )


def _encode_without_author(body: Body) -> bytes:
    return encode_canonical({key: value for key, value in body.items() if key != "by"})
