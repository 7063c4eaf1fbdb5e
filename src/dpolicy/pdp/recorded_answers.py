"""Recorded answers: the decisions that clients received, compared with recomputed decisions."""

from __future__ import annotations

import json
from dataclasses import replace

from dpolicy.releases.decision import Decision, Reason


def parse_answer(answer: str) -> Decision | None:
    """Parse a recorded answer; return None unless it is exactly the text of a decision."""
    try:
        decision = Decision.from_json(json.loads(answer))
        text = json.dumps(decision.as_json(), ensure_ascii=False, sort_keys=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return decision if text == answer else None


def decision_outline(decision: Decision) -> tuple[object, ...]:
    """Return the parts of a decision that must be equal: result, record and exceeded rules."""
    result = (decision.release, decision.allowed, decision.policy, decision.sequence)
    return (*result, decision.uncovered, decision.predicate_errors, sorted(decision.exceeded_rules))


def has_same_reasons(recorded: Decision, recomputed: Decision, *, with_offers: bool) -> bool:
    """Return whether two decisions with the same outline have the same reasons.

    With `with_offers`, they must have the same counter-offers too. A version may improve the search
    for offers, so the offers of records of other versions are not compared.

    The history of a process, such as voided releases, determines the order of reasons, which of
    equally tight rules are reported, and which of equal locations and spenders. These may differ.
    """
    first, second = _comparable_reasons(recorded), _comparable_reasons(recomputed)
    return (
        (not with_offers or recorded.counter_offers == recomputed.counter_offers)
        and len(recorded.reasons) == len(first) == len(second)
        and (recorded.allowed or first.keys() == second.keys())
        and all(_is_same(first[rule], second[rule]) for rule in first.keys() & second.keys())
    )


def _is_same(recorded: Reason, recomputed: Reason) -> bool:
    """Return whether two reasons are equal; a record before version 0.3 has no limit of δ."""
    if recorded.leaks is None:
        recorded, recomputed = _without_delta(recorded), _without_delta(recomputed)
    return recorded == recomputed


def _without_delta(reason: Reason) -> Reason:
    spent, cost, after = (
        {key: value for key, value in loss.items() if key != "delta"}
        for loss in (reason.spent, reason.cost, reason.after)
    )
    return replace(reason, spent=spent, cost=cost, after=after, leaks=None, binding=None)


def _comparable_reasons(decision: Decision) -> dict[tuple[str, str, bool], Reason]:
    """Return the reasons by rule, without location and spenders."""
    return {
        (reason.rule, reason.unit, reason.each_release): replace(reason, spenders=(), location={})
        for reason in decision.reasons
    }
