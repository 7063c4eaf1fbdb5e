"""Pagination of long lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

#: Number of list items on one page.
PER_PAGE = 25

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Pagination:
    """Page number, number of pages, and number of items on all pages; pages count from 1."""

    page: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        """Return the index of the first item on the page, from 0."""
        return (self.page - 1) * PER_PAGE

    def items_on_page(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the part of `items` that is on the page."""
        return items[self.first : self.first + PER_PAGE]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"page": self.page, "pages": self.pages, "total": self.total}


def paginate(requested_page: int, total: int) -> Pagination:
    """Return the requested page, or the nearest existing one."""
    pages = max(1, -(-total // PER_PAGE))
    return Pagination(min(max(1, requested_page), pages), pages, total)
