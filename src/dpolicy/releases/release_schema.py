"""What a mechanism may say about itself: the closed vocabulary, and the facts predicates read.

A label, attribute or value outside the schema is an error, never "no match" (threat T6). Lists of
text are sets: they are sorted and freed of duplicates before any predicate sees them, so that no
predicate can depend on an order that means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Label:
    """One label of the vocabulary: a choice of `values`, or any text where `values` is None."""

    name: str
    values: tuple[str, ...] | None
    many: bool = False
    default: str | None = None
    required: bool = False

    @property
    def may_be_missing(self) -> bool:
        """Whether a release can leave it out so that a predicate finds nothing there."""
        return not (self.required or self.many or self.default is not None)


@dataclass(frozen=True, slots=True)
class ReleaseSchema:
    """The vocabulary that releases are written in and predicates are checked against."""

    attributes: frozenset[str] = frozenset()
    labels: Mapping[str, Label] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PredicateInput:
    """What a predicate is evaluated on: one labelled mechanism.

    `labels` holds a text for each single-valued label that is present (defaults filled in) and a
    sorted tuple for each `many` label (empty where nothing was said).
    """

    attributes: tuple[str, ...] = ()
    labels: Mapping[str, str | tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    mechanism: str = "declared"
    by: str = ""
