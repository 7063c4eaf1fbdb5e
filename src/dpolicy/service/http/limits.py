"""Limits of a server: size and duration of bodies, request rate, number of connections.

Each limit prevents one caller from using the resources of the others. No limit affects a decision.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from dpolicy.errors import RequestRefused

#: Number of callers whose token buckets are kept. A dropped bucket is full when created again.
MAX_TRACKED_CALLERS = 10_000


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits for requests and connections."""

    #: The largest policy has 2 MB (`MAX_BYTES` in `text/yaml_reader.py`); 2 MB are about 5,000
    #: releases.
    body_bytes: int = 2_000_000
    #: A parsed JSON value needs up to 150 bytes of memory.
    body_values: int = 200_000
    #: Seconds for the headers of a request, counted from the connection, and for its body.
    body_seconds: float = 20.0
    #: Sustained requests per second and largest burst, per caller.
    rate: float = 500.0
    burst: float = 2_000.0
    #: Open connections of all callers together.
    connections: int = 2_000


class RateLimiter:
    """One token bucket per caller: `rate` requests per second, bursts of at most `burst`."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        #: Caller → (tokens in the bucket, time of the last request); least recent caller first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def consume(self, caller: str) -> None:
        """Take one token from the bucket of a caller. Raise `RequestRefused` if it is empty."""
        with self._lock:
            now = self._clock()
            tokens, last_request = self._buckets.pop(caller, (self._burst, now))
            tokens = min(self._burst, tokens + (now - last_request) * self._rate)
            self._buckets[caller] = (max(0.0, tokens - 1), now)
            if len(self._buckets) > MAX_TRACKED_CALLERS:
                self._buckets.popitem(last=False)
        if tokens < 1:
            message = f"more than {self._rate:g} requests per second; retry later"
            raise RequestRefused("too-many-requests", message)
