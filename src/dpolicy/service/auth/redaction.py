"""Redact responses for callers who may see only their own releases.

Ids and authors of other releases are removed; amounts stay, because budgets are shared. The ledger
record is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.releases.decision import Decision
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse

#: Keys of a response below which ids of releases occur.
_CONTAINERS = frozenset({"budgets", "reasons", "decision", "results"})
_SPENDERS = "spent-most"


def redact_response(call: ApiRequest, response: ApiResponse) -> ApiResponse:
    """Return the response without the ids of releases that the caller may not see."""
    if call.access.local or not call.principal.only_analyst:
        return response
    ids = _find_spenders(response.value)
    visible = _select_releases_by(call.decision_point, ids, call.principal.name)
    return replace(response, value=_keep_spenders(response.value, visible))


def redact_decision(
    point: DecisionPoint, decision: Decision, visible_owner: str | None
) -> Decision:
    """Return the decision with only the releases of `visible_owner`; None if all are visible."""
    if visible_owner is None:
        return decision
    spenders = (release for reason in decision.reasons for release in reason.spenders)
    visible = _select_releases_by(point, spenders, visible_owner)
    reasons = (
        replace(reason, spenders=tuple(id_ for id_ in reason.spenders if id_ in visible))
        for reason in decision.reasons
    )
    return replace(decision, reasons=tuple(reasons))


def visible_author(call: ApiRequest) -> str | None:
    """Return the caller if they may see only their own releases, None if they may see all.

    An answer must leave out the others before it selects the largest releases: the smallest limit
    that lists an own release would count the larger releases of others.
    """
    if call.access.local or not call.principal.only_analyst:
        return None
    return call.principal.name


def _select_releases_by(
    point: DecisionPoint, releases: Iterable[str], person: str
) -> frozenset[str]:
    """Return the releases whose author is `person`. Does not read the ledger for no releases."""
    candidates = frozenset(releases)

    def select(state: LedgerState) -> frozenset[str]:
        entries = ((release, state.entries.get(release)) for release in candidates)
        return frozenset(
            release
            for release, entry in entries
            if entry and state.charge_groups[entry.charge_group].by == person
        )

    return point.read_entries(select) if candidates else candidates


def _find_spenders(payload: Any) -> Iterator[str]:
    if isinstance(payload, list):
        for item in payload:
            yield from _find_spenders(item)
    elif isinstance(payload, dict):
        yield from payload.get(_SPENDERS, ())
        for key in _CONTAINERS & payload.keys():
            yield from _find_spenders(payload[key])


def _keep_spenders(payload: Any, visible: frozenset[str]) -> Any:
    """Return a copy of the JSON value in which `spent-most` has only visible releases."""
    if isinstance(payload, list):
        return [_keep_spenders(item, visible) for item in payload]
    if not isinstance(payload, dict):
        return payload
    redacted = {key: _keep_spenders(payload[key], visible) for key in _CONTAINERS & payload.keys()}
    if _SPENDERS in payload:
        redacted[_SPENDERS] = [release for release in payload[_SPENDERS] if release in visible]
    return {**payload, **redacted}
