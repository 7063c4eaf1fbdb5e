"""A long list → the part of it that fits a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

#: So many lines are read on one page.
PER_PAGE = 25

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Pagination:
    """Which page of how many, and how many things there are on all of them."""

    page: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        """The position of the first thing on the page, from 0."""
        return (self.page - 1) * PER_PAGE

    def items_on_page(self, every: Sequence[Item]) -> Sequence[Item]:
        """The part of a list that is on the page."""
        return every[self.first : self.first + PER_PAGE]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"page": self.page, "pages": self.pages, "total": self.total}


def paginate(requested_page: int, total: int) -> Pagination:
    """The page that was asked for, or the nearest that there is."""
    pages = max(1, -(-total // PER_PAGE))
    return Pagination(min(max(1, requested_page), pages), pages, total)
