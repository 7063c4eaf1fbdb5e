"""Theorem A of theory 1.5, pair by pair: when may one rule be dropped because of another?

Each condition is a function of its own, so that a canary can leave one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from functools import cache

from tests.reference.rules import Key, PolicyDict, Rule, block, reads


@cache
def period_inside(small: str | None, large: str | None) -> bool:
    """Whether every block of one period meets only one block of another, over four years."""
    met: dict[object, set[object]] = {}
    for ordinal in range(date(2023, 1, 1).toordinal(), date(2027, 1, 1).toordinal()):
        day = date.fromordinal(ordinal)
        met.setdefault(block(small, day), set()).add(block(large, day))
    return all(len(blocks) == 1 for blocks in met.values())


def unit_covered(policy: PolicyDict, small: str, large: str) -> bool:
    """Whether a cost for the larger unit bounds that for the smaller one (theory 0.1, A.3)."""
    units, accounting = policy["units"], policy.get("accounting", {})
    if small == large:
        return True
    relations = {
        units[u].get("relation", accounting.get("relation", "add-remove")) for u in (small, large)
    }
    additive = relations == {"add-remove"} and accounting.get("require") == "additive"
    whose = [u if "period" not in units[u] else "user" for u in (small, large)]
    same_people = whose[0] == whose[1] or whose[0] in units[large].get("covers", ())
    periods = (units[u].get("period") for u in (small, large))
    return (relations == {"change"} or additive) and same_people and period_inside(*periods)


def bound_covered(tight: Rule, loose: Rule) -> bool:
    """Whatever `tight` may rest on is enough for `loose` (A.5)."""
    if loose.delta is not None and (tight.delta is None or tight.delta > loose.delta):
        return False
    return all(any(_enough(have, want) for want in loose.clauses) for have in tight.clauses)


def _enough(have: Mapping[Key, Fraction], want: Mapping[Key, Fraction]) -> bool:
    return all(key in have and have[key] <= most for key, most in want.items())


def blocks_covered(policy: PolicyDict, inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    """The outer rule splits by nothing that the inner one does not split by (A.4)."""
    partitions = policy.get("schema", {}).get("partitions", {})
    about = [{p for p in partitions if reads(texts, p)} for texts in (inner, outer)]
    return about[0] <= about[1]
