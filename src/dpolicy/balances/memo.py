"""Memo: results of a pure function, kept by the value that owns them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Results of a pure function by argument; empties itself when it holds `limit` results.

    A memo changes how fast a result comes, never which result. Threads may share it: two of them
    may compute the same result, and either one is kept.
    """

    __slots__ = ("_limit", "_results")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: dict[K, V] = {}

    def get_or_compute(self, key: K, compute: Callable[[K], V]) -> V:
        """Return the result for `key`; compute it at the first request."""
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= self._limit:
                self._results.clear()
            result = self._results[key] = compute(key)
        return result
