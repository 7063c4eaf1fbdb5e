"""Check that a query reads only attributes that its gate declares (theory 0.2).

A query that reads an undeclared attribute is refused, because the policy has not decided about it.
Declaring more attributes than a query reads is allowed, and charged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from dpolicy.errors import OperationRejected

#: Attributes that a column reveals, for columns that are not named like their attribute.
Names = Mapping[str, str | Sequence[str]]


def check_attributes(used: Collection[str], names: Names, declared: Collection[str]) -> None:
    """Raise `OperationRejected` if the attribute of a used column is not declared.

    `names` maps columns to attributes; `()` is a column without an attribute.
    """
    attributes = {attribute for column in used for attribute in _attributes(column, names)}
    undeclared = sorted(attributes - set(declared))
    if undeclared:
        listed = ", ".join(f"`{name}`" for name in undeclared)
        raise OperationRejected(
            f"the query uses {listed}; help: add it to the attributes of the gate"
        )


def columns_named_in(text: str, columns: Collection[str]) -> list[str]:
    """Return the columns whose names occur anywhere in an SQL text, constants included.

    The comparison ignores case.
    """
    folded = text.casefold()
    words = set(re.findall(r"\w+", folded))
    return [c for c in columns if c.casefold() in (words if c.isidentifier() else folded)]


def _attributes(column: str, names: Names) -> Sequence[str]:
    attributes = names.get(column, column)
    return (attributes,) if isinstance(attributes, str) else attributes
