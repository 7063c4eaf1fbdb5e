"""What is answered → the same for somebody who sees only their own: no release of others is named.

Amounts stay, since a budget is everybody's. What the ledger records stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.enforcement.state import State
from dpolicy.releases.decision import Decision
from dpolicy.service.endpoint import Answer, Call

#: The keys of answers below which releases are named.
_BELOW = frozenset({"budgets", "reasons", "decision"})
_NAMES = "spent-most"


def answer_seen(call: Call, answer: Answer) -> Answer:
    """An answer as the caller may see it."""
    if call.access.local or not call.principal.only_analyst:
        return answer
    own = _own(call.point, _named(answer.value), call.principal.name)
    return replace(answer, value=_only(answer.value, own))


def decision_seen(point: DecisionPoint, decision: Decision, own: str | None) -> Decision:
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

    def look(state: State) -> frozenset[str]:
        entries = ((name, state.entries.get(name)) for name in names)
        return frozenset(n for n, e in entries if e and state.contents[e.content].by == person)

    return point.consult(look) if names else names


def _named(said: Any) -> Iterator[str]:
    if isinstance(said, list):
        for one in said:
            yield from _named(one)
    elif isinstance(said, dict):
        yield from said.get(_NAMES, ())
        for key in _BELOW & said.keys():
            yield from _named(said[key])


def _only(said: Any, own: frozenset[str]) -> Any:
    if isinstance(said, list):
        return [_only(one, own) for one in said]
    if not isinstance(said, dict):
        return said
    told = {key: _only(said[key], own) for key in _BELOW & said.keys()}
    if _NAMES in said:
        told[_NAMES] = [name for name in said[_NAMES] if name in own]
    return {**said, **told}
