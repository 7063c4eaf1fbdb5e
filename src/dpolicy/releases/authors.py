"""Authors of releases: as an argument of a request and as `by` of its release.

Rules read `by` of the release. An argument fills it if the release states no author, so that rules
and records name the same author.
"""

from __future__ import annotations

from dpolicy.errors import ReleaseRejected
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
