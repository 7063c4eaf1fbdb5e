"""Naive headroom: repeat a release on a copy of the ledger until it is denied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint

#: Name, unit, and whether it is a per-release rule.
RuleKey = tuple[str, str, bool]


@dataclass(frozen=True)
class NaiveHeadroom:
    """Number of allowed repetitions, in all and before each rule is exceeded; at most the limit.

    A rule that is never exceeded is missing.
    """

    more: int
    by_rule: Mapping[RuleKey, int]


def repeat_release(
    point: DecisionPoint, clock: Callable[[], datetime], body: Mapping[str, Any], limit: int
) -> NaiveHeadroom:
    """Submit a release again and again under new ids; after the first denial, import it.

    An import charges without a decision, so that the counts of the other rules are reached.
    """
    copy = DecisionPoint(MemoryStore(list(point.records())), clock)
    more, by_rule = limit, dict[RuleKey, int]()
    for number in range(limit):
        request = {**body, "release": f"repetition-{number}"}
        decision = copy.submit(request)
        if not decision.allowed:
            more = min(more, number)
            for reason in decision.reasons:
                if not reason.holds:
                    by_rule.setdefault((reason.rule, reason.unit, reason.each_release), number)
            if decision.uncovered or decision.predicate_errors:
                break
            copy.import_past({**request, "release": f"past-{number}"}, because="counted anyway")
    return NaiveHeadroom(more, by_rule)
