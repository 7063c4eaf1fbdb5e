"""Counters of a server in the text format of Prometheus.

The format is written by hand: two counters and one histogram need less code than the setup of the
usual client library, and nothing here uses its registries or process metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock

#: Upper bounds of the histogram in seconds. A commit takes milliseconds, a large policy seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of requests and decisions. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._bucket_counts: Counter[tuple[str, float]] = Counter()
        self._seconds: dict[str, float] = {}
        self._decisions: Counter[str] = Counter()

    def request(self, operation: str, status: int, seconds: float) -> None:
        """Count a request after its response was sent."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + seconds
            for bound in BUCKETS:
                if seconds <= bound:
                    self._bucket_counts[operation, bound] += 1
                    break

    def decision(self, outcome: str) -> None:
        """Count a decision; `outcome` is allow, deny, replayed or pending."""
        with self._lock:
            self._decisions[outcome] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """Return all counters and the given gauges as text."""
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
        for outcome, count in sorted(self._decisions.items()):
            yield f'dpolicy_decisions_total{{decision="{outcome}"}} {count}'

    def _histogram(self, operation: str, total: float) -> Iterator[str]:
        name, cumulative = "dpolicy_http_request_duration_seconds", 0
        for bound in BUCKETS:
            cumulative += self._bucket_counts[operation, bound]
            yield f'{name}_bucket{{operation="{operation}",le="{bound:g}"}} {cumulative}'
        count = sum(n for (served, _), n in self._requests.items() if served == operation)
        yield f'{name}_bucket{{operation="{operation}",le="+Inf"}} {count}'
        yield f'{name}_sum{{operation="{operation}"}} {total:.6f}'
        yield f'{name}_count{{operation="{operation}"}} {count}'


def _gauge_lines(gauges: dict[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value:g}"
