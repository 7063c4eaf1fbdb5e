"""Theorem A of theory 1.5: the conditions under which one rule implies another.

Each condition is a separate function, so that a canary can omit one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from functools import cache

from tests.reference.rules import Key, PolicyDict, Rule, block, reads


@cache
def period_inside(small: str | None, large: str | None) -> bool:
    """Return whether every block of `small` meets only one block of `large`, over four years."""
    met: dict[object, set[object]] = {}
    for ordinal in range(date(2023, 1, 1).toordinal(), date(2027, 1, 1).toordinal()):
        day = date.fromordinal(ordinal)
        met.setdefault(block(small, day), set()).add(block(large, day))
    return all(len(blocks) == 1 for blocks in met.values())


def covers_unit(policy: PolicyDict, small: str, large: str) -> bool:
    """Return whether a cost for the larger unit bounds one for the smaller (theory 0.1, A.3)."""
    units, accounting = policy["units"], policy.get("accounting", {})
    if small == large:
        return True
    relations = {
        units[u].get("relation", accounting.get("relation", "add-remove")) for u in (small, large)
    }
    additive = relations == {"add-remove"} and accounting.get("require") == "additive"
    entities = [u if "period" not in units[u] else "user" for u in (small, large)]
    same_people = entities[0] == entities[1] or entities[0] in units[large].get("covers", ())
    periods = [units[u].get("period") for u in (small, large)]
    return (
        (relations == {"change"} or additive)
        and same_people
        and period_inside(*periods)
        and covers_merged_blocks(accounting.get("collapse"), *periods)
    )


def covers_merged_blocks(
    collapse: Mapping[str, str] | None, small: str | None, large: str | None
) -> bool:
    """Return whether a merged block of `small` meets only one block of `large` (A.4 and P9)."""
    if collapse is None or small is None or not period_inside(small, collapse["into"]):
        return True
    is_merged_too = large is not None and period_inside(large, collapse["into"])
    return is_merged_too or period_inside(collapse["into"], large)


def covers_bound(tight: Rule, loose: Rule) -> bool:
    """Return whether every clause of `tight` implies a clause of `loose` (A.5)."""
    if loose.delta is not None and (tight.delta is None or tight.delta > loose.delta):
        return False
    return all(
        any(_implies_clause(offered, required) for required in loose.clauses)
        for offered in tight.clauses
    )


def _implies_clause(offered: Mapping[Key, Fraction], required: Mapping[Key, Fraction]) -> bool:
    return all(key in offered and offered[key] <= limit for key, limit in required.items())


def covers_blocks(policy: PolicyDict, inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    """Return whether the outer rule splits by no partition that the inner does not (A.4)."""
    partitions = policy.get("schema", {}).get("partitions", {})
    inner_reads, outer_reads = ({p for p in partitions if reads(t, p)} for t in (inner, outer))
    return inner_reads <= outer_reads
