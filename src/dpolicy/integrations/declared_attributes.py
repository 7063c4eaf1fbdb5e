"""Columns that a query uses → its attributes, or a refusal (theory 0.2).

A query that uses what its gate does not declare is not run: the policy would not have been asked
about it. Declaring more than is used is allowed, and charged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from dpolicy.errors import OperationRejected

#: The attributes that a column tells something about, where that is not its own name.
Names = Mapping[str, str | Sequence[str]]


def check_attributes(used: Collection[str], names: Names, declared: Collection[str]) -> None:
    """Refuse columns whose attributes were not declared; `names` maps them, `()` for none."""
    found = {attribute for column in used for attribute in _attributes(column, names)}
    missing = sorted(found - set(declared))
    if missing:
        shown = ", ".join(f"`{name}`" for name in missing)
        raise OperationRejected(f"the query uses {shown}, which its attributes do not name")


def columns_named_in(text: str, columns: Collection[str]) -> list[str]:
    """The columns whose names stand in an SQL text, be it in a constant; case does not matter."""
    folded = text.casefold()
    words = set(re.findall(r"\w+", folded))
    return [c for c in columns if c.casefold() in (words if c.isidentifier() else folded)]


def _attributes(column: str, names: Names) -> Sequence[str]:
    said = names.get(column, column)
    return (said,) if isinstance(said, str) else said
