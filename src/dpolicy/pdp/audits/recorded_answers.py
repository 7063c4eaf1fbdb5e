"""Recorded answers: the decisions that clients received, compared with recomputed decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
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


def decision_outline(decision: Decision) -> str:
    """Return the parts of a decision that must be equal: result, record and exceeded rules."""
    result = (decision.release, decision.allowed, decision.policy, decision.sequence)
    exceeded = sorted(map(json.dumps, decision.exceeded_rules))
    return json.dumps([*result, decision.uncovered, decision.predicate_errors, exceeded])


#: Recomputes a recorded reason for its rule at the block that it reports; None if it cannot be.
RecomputeReason = Callable[[Reason], Reason | None]


def has_same_reasons(
    recorded: Decision, recomputed: Decision, recompute: RecomputeReason, *, is_old: bool
) -> bool:
    """Return whether two decisions with the same outline have the same reasons.

    The record of a version before 0.3, an old one, has advice: offers, spenders and causes. They
    are not compared. A later record has none.

    The history of a process, such as voided releases, determines the order of reasons and which of
    equally tight rules are reported. These may differ. So may the reported block, which depended on
    the history before version 0.3. `recompute` gives the reason for such a rule or block.
    """
    first, second = _reasons_by_rule(recorded), _reasons_by_rule(recomputed)
    return (
        (is_old or not recorded.counter_offers)
        and len(recorded.reasons) == len(first) == len(second)
        and (recorded.allowed or first.keys() == second.keys())
        and all(
            _is_true(reason, second.get(rule), recompute, is_old=is_old)
            for rule, reason in first.items()
        )
    )


def _is_true(
    recorded: Reason, recomputed: Reason | None, recompute: RecomputeReason, *, is_old: bool
) -> bool:
    """Return whether a recorded reason is true for its rule, at the block that it reports."""
    if recomputed is None or recorded.location != recomputed.location:
        recomputed = recompute(recorded)
    if recomputed is None:
        return False
    if is_old:
        return _is_same_as_old(recorded, recomputed)
    return _json_text(recorded) == _json_text(recomputed)


def _json_text(reason: Reason) -> str:
    return json.dumps(reason.as_json(), sort_keys=True)


def _is_same_as_old(recorded: Reason, recomputed: Reason) -> bool:
    """Return whether a reason of an old record is true, without its location and advice.

    It may have no limit of δ.
    """
    if recorded.leaks is None:
        recorded, recomputed = _without_delta(recorded), _without_delta(recomputed)
    return replace(recorded, location={}) == replace(recomputed, location={})


def _without_delta(reason: Reason) -> Reason:
    spent, cost, after = (
        {key: value for key, value in loss.items() if key != "delta"}
        for loss in (reason.spent, reason.cost, reason.after)
    )
    return replace(reason, spent=spent, cost=cost, after=after, leaks=None, binding=None)


def _reasons_by_rule(decision: Decision) -> dict[str, Reason]:
    """Return the reasons by the text of rule, unit and kind, which a forged answer may change."""
    return {
        json.dumps([reason.rule, reason.unit, reason.each_release]): reason
        for reason in decision.reasons
    }
