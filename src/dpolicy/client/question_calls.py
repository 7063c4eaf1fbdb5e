"""Calls that ask about the ledger: spending in any scope, and headroom of a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpolicy.client.wire import ApiCall, release_body, release_call
from dpolicy.errors import InvalidValue
from dpolicy.ledger.canonical import encode_canonical

if TYPE_CHECKING:
    from dpolicy.releases.body import Body
    from dpolicy.releases.release import Release


def spent_call(
    when: str | None,
    rule: str | None,
    unit: str | None,
    at: Mapping[str, str] | None,
    since: date | str | None,
    by: Sequence[str] | str | None,
    delta: Fraction | float | str | None,
    limit: int,
) -> ApiCall[dict[str, Any]]:
    """Build the call that returns what was spent in a scope."""
    stated = {
        "when": when,
        "rule": rule,
        "unit": unit,
        "at": None if at is None else dict(at),
        "since": since.isoformat() if isinstance(since, date) else since,
        "by": [by] if isinstance(by, str) else by,
        "delta": None if delta is None else _exact_number(delta),
        "limit": limit,
    }
    body = {name: value for name, value in stated.items() if value is not None}
    return ApiCall("POST", "/v1/spent", dict, encode_canonical(body))


def _exact_number(delta: Fraction | float | str) -> Fraction:
    try:
        return Fraction(repr(delta) if isinstance(delta, float) else delta)
    except (ArithmeticError, TypeError, ValueError):
        message = f"`delta` is `{delta!s:.40}`; help: give a number from 0 to below 1"
        raise InvalidValue("P007", message) from None


def headroom_call(release: Release | Body | str, most_accurate: bool) -> ApiCall[dict[str, Any]]:
    """Build the call that returns how many more releases like this one would be allowed."""
    content = {"id": release} if isinstance(release, str) else {"release": release_body(release)}
    return release_call("/v1/headroom", dict, {**content, "most-accurate": most_accurate})
