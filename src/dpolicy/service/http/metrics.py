"""What a server did → text for Prometheus.

Written by hand: a handful of counters and one histogram are fewer lines than the registry, process
and multi-process machinery of the usual library, which nothing here would use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock

#: Upper ends in seconds: a commit takes milliseconds, a whole policy seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts requests and decisions. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: dict[str, float] = {}
        self._decisions: Counter[str] = Counter()

    def request(self, operation: str, status: int, seconds: float) -> None:
        """Note a request that was answered."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds
            for end in BUCKETS:
                if seconds <= end:
                    self._within[operation, end] += 1
                    break

    def decision(self, word: str) -> None:
        """Note a decision: allow, deny, replayed or waiting."""
        with self._lock:
            self._decisions[word] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """Everything, beside the gauges that are read now."""
        with self._lock:
            return "\n".join([*self._lines(), *_gauge_lines(gauges)]) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# TYPE dpolicy_http_requests_total counter"
        for (operation, status), count in sorted(self._requests.items()):
            labels = f'operation="{operation}",status="{status}"'
            yield f"dpolicy_http_requests_total{{{labels}}} {count}"
        yield "# TYPE dpolicy_http_request_duration_seconds histogram"
        for operation, total in sorted(self._seconds.items()):
            yield from self._histogram(operation, total)
        yield "# TYPE dpolicy_decisions_total counter"
        for word, count in sorted(self._decisions.items()):
            yield f'dpolicy_decisions_total{{decision="{word}"}} {count}'

    def _histogram(self, operation: str, total: float) -> Iterator[str]:
        name, so_far = "dpolicy_http_request_duration_seconds", 0
        for end in BUCKETS:
            so_far += self._within[operation, end]
            yield f'{name}_bucket{{operation="{operation}",le="{end:g}"}} {so_far}'
        count = sum(n for (said, _), n in self._requests.items() if said == operation)
        yield f'{name}_bucket{{operation="{operation}",le="+Inf"}} {count}'
        yield f'{name}_sum{{operation="{operation}"}} {total:.6f}'
        yield f'{name}_count{{operation="{operation}"}} {count}'


def _gauge_lines(gauges: dict[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value:g}"
