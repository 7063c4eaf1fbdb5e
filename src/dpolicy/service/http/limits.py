"""How much anybody may ask: the size and speed of bodies, requests a second, connections.

Each limit keeps one caller from taking what the others need; none of them decides about budgets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from dpolicy.errors import RequestRefused

#: Callers whose buckets are remembered; whoever is forgotten starts with a full one.
MAX_TRACKED_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What a server takes."""

    #: Two megabytes are the largest policy (`language/source.py`) and some 5,000 releases.
    body_bytes: int = 2_000_000
    #: JSON values cost up to 150 bytes each once they are read.
    body_values: int = 200_000
    #: Seconds for a whole body, and for the headers before it, from when somebody connects.
    body_seconds: float = 20.0
    #: Requests a second, lasting and at once.
    rate: float = 500.0
    burst: float = 2_000.0
    #: Connections at once, of everybody together.
    connections: int = 2_000


class RateLimiter:
    """A token bucket for each caller: `rate` requests a second, `burst` at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def consume(self, caller: str) -> None:
        """Take one request out of a bucket. Raises `Refused` if it is empty."""
        with self._lock:
            now = self._clock()
            left, seen = self._left.pop(caller, (self._burst, now))
            left = min(self._burst, left + (now - seen) * self._rate)
            self._left[caller] = (max(0.0, left - 1), now)
            if len(self._left) > MAX_TRACKED_CALLERS:
                self._left.popitem(last=False)
        if left < 1:
            raise RequestRefused("too-many-requests", f"more than {self._rate:g} requests a second")
