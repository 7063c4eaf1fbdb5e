"""What is answered → the same for somebody who sees only their own: no release of others is named.

Amounts stay, since a budget is everybody's. What the ledger records stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.releases.decision import Decision
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse

#: The keys of answers below which releases are named.
_BELOW = frozenset({"budgets", "reasons", "decision"})
_NAMES = "spent-most"


def redact_response(call: ApiRequest, answer: ApiResponse) -> ApiResponse:
    """An answer as the caller may see it."""
    if call.access.local or not call.principal.only_analyst:
        return answer
    own = _own(call.decision_point, _named(answer.value), call.principal.name)
    return replace(answer, value=_only(answer.value, own))


def redact_decision(point: DecisionPoint, decision: Decision, own: str | None) -> Decision:
    """A decision as `own` may see it, who is None for somebody who sees everything."""
    if own is None:
        return decision
    names = _own(point, (n for r in decision.reasons for n in r.spenders), own)
    reasons = (
        replace(r, spenders=tuple(name for name in r.spenders if name in names))
        for r in decision.reasons
    )
    return replace(decision, reasons=tuple(reasons))


def _own(point: DecisionPoint, named: Iterable[str], person: str) -> frozenset[str]:
    """Those releases that are a person's; the ledger is not asked if none is named."""
    names = frozenset(named)

    def look(state: LedgerState) -> frozenset[str]:
        entries = ((name, state.entries.get(name)) for name in names)
        return frozenset(
            n for n, e in entries if e and state.charge_groups[e.charge_group].by == person
        )

    return point.read_state(look) if names else names


def _named(payload: Any) -> Iterator[str]:
    if isinstance(payload, list):
        for one in payload:
            yield from _named(one)
    elif isinstance(payload, dict):
        yield from payload.get(_NAMES, ())
        for key in _BELOW & payload.keys():
            yield from _named(payload[key])


def _only(payload: Any, own: frozenset[str]) -> Any:
    if isinstance(payload, list):
        return [_only(one, own) for one in payload]
    if not isinstance(payload, dict):
        return payload
    told = {key: _only(payload[key], own) for key in _BELOW & payload.keys()}
    if _NAMES in payload:
        told[_NAMES] = [name for name in payload[_NAMES] if name in own]
    return {**payload, **told}
