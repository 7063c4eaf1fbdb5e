"""Columns that a query was found to use → its attributes, or a refusal (theory 0.2).

A query that uses what its gate does not declare is not run: the policy would not have been asked
about it. Declaring more than is used is allowed, and charged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dpolicy.errors import Misused

#: The attributes that a column tells something about, where that is not its own name.
Names = Mapping[str, str | Sequence[str]]


def check_attributes(used: Collection[str], names: Names, declared: Collection[str]) -> None:
    """Refuse columns whose attributes were not declared; `names` maps them, `()` for none."""
    found = {attribute for column in used for attribute in _attributes(column, names)}
    missing = sorted(found - set(declared))
    if missing:
        shown = ", ".join(f"`{name}`" for name in missing)
        raise Misused(f"the query uses {shown}, which its attributes do not name")


def _attributes(column: str, names: Names) -> Sequence[str]:
    said = names.get(column, column)
    return (said,) if isinstance(said, str) else said
