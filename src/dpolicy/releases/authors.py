"""Authors of releases: as an argument of a request and as `by` of its release.

Rules read `by` of the release. An argument fills it if the release states no author, so that rules
and records name the same author.
"""

from __future__ import annotations

from collections.abc import Collection

from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.releases.body import Body
from dpolicy.releases.problem_codes import author_problem
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_with_author


def require_text(name: str, value: object) -> None:
    """Raise `InvalidValue` (P007) if an argument of a request is no `str` of valid Unicode.

    A subclass of `str` is refused: an argument is hashed, compared and recorded as the same text.
    """
    if type(value) is not str:
        raise InvalidValue("P007", f"`{name}` is `{value!r:.80}`; help: give a text")
    _require_unicode(name, value)


def _require_unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue("P007", f"`{name}` is no valid Unicode: {value!a:.80}") from None


def require_texts(**arguments: object) -> None:
    """Raise `InvalidValue` (P007) if one of the named arguments of a request is no text.

    A request checks its arguments before it waits for the writer: an unexpected error there fails
    the other requests of the commit.
    """
    for name, value in arguments.items():
        require_text(name, value)


def require_names(name: str, values: object) -> None:
    """Raise `InvalidValue` (P007) unless an argument is a text or a collection of texts.

    Names are only compared, so texts with a location or a rule are accepted too.
    """
    names = (values,) if isinstance(values, str) else values
    if not isinstance(names, Collection):
        raise InvalidValue("P007", f"`{name}` is `{values!r:.80}`; help: give a list of names")
    for value in names:
        if not isinstance(value, str):
            raise InvalidValue("P007", f"`{name}` has `{value!r:.80}`; help: give a text")
        _require_unicode(name, value)


def require_number(name: str, value: object) -> None:
    """Raise `InvalidValue` (P007) if an argument of a request is no whole number."""
    if type(value) is not int:
        raise InvalidValue("P007", f"`{name}` is `{value!r:.80}`; help: give a whole number")


def fill_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author if it states none.

    Raise `PolicyRejected` if `by` is not a valid name, and `InvalidValue` if it is no text.
    """
    require_text("by", by)
    return release if release.by or not by else release_with_author(release, by)


def require_author(release: Release, by: str) -> Release:
    """Return the release with `by` as its author; an empty `by` keeps the stated author.

    Raise `ReleaseRejected` (R009) if the release states another author, `PolicyRejected` if `by` is
    not a valid name, and `InvalidValue` if it is no text.
    """
    require_text("by", by)
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
