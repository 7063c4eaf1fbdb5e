"""The vocabulary of releases (attributes and labels), and the input of predicates.

A label, attribute or value outside the schema is an error, never "no match" (SECURITY.md, item 3).
Lists of text are sets: they are sorted and duplicates are removed before a predicate reads them, so
that no predicate can depend on their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Label:
    """One label of the vocabulary: a choice of `values`, or any text if `values` is None."""

    name: str
    values: tuple[str, ...] | None
    many: bool = False
    default: str | None = None
    required: bool = False

    @property
    def may_be_missing(self) -> bool:
        """Whether a predicate can read the label of a mechanism that does not have it."""
        return not (self.required or self.default is not None)


@dataclass(frozen=True, slots=True)
class ReleaseSchema:
    """The vocabulary of releases; the checker of predicates uses it too."""

    attributes: frozenset[str] = frozenset()
    labels: Mapping[str, Label] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PredicateInput:
    """The input of a predicate: one labelled mechanism.

    `labels` holds a text for each single-valued label that is present, with defaults filled in,
    and a sorted tuple for each `many` label. An empty tuple means that the label is missing.
    `unknown_labels` are labels of which a recorded release has no statement, because the vocabulary
    did not have them or had other values: no predicate can read them, not even `has`.
    """

    attributes: tuple[str, ...] = ()
    labels: Mapping[str, str | tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    mechanism: str = "declared"
    by: str = ""
    unknown_labels: frozenset[str] = frozenset()
