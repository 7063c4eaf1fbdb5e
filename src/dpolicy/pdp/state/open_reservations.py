"""Open reservations: the expiry time of each, and the order in which they expire."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush


class OpenReservations(dict[str, str]):
    """Expiry times by release. Mutable.

    A heap has the times of all reservations, and of some that have ended. So the expired ones are
    known without a look at all others.
    """

    def __init__(self, times: Mapping[str, str] | None = None) -> None:
        super().__init__(times or {})
        self._heap = [(expires, release) for release, expires in self.items()]
        heapify(self._heap)

    def __setitem__(self, release: str, expires: str) -> None:
        super().__setitem__(release, expires)
        heappush(self._heap, (expires, release))

    def take_expired(self, timestamp: str, limit: int) -> list[str]:
        """Return up to `limit` reservations whose time has passed, in the order of their times.

        The caller records their expiry: they are not returned again.
        """
        expired: list[str] = []
        while self._heap and self._heap[0][0] < timestamp and len(expired) < limit:
            expires, release = heappop(self._heap)
            if self.get(release) == expires:
                expired.append(release)
        return expired
