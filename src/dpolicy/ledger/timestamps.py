"""Timestamps of events."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache

from dpolicy.errors import LedgerDamaged

#: A reservation that is not ended within this time expires: it stays charged permanently.
RESERVATION_LIFETIME = timedelta(hours=24)


def expiry_time(reserved_at: str) -> str | None:
    """Return when a reservation expires that was made at a time; None for an invalid time."""
    try:
        expires = datetime.fromisoformat(reserved_at) + RESERVATION_LIFETIME
    except (OverflowError, ValueError):
        return None
    return expires.isoformat(timespec="seconds")


def first_day_of_month(timestamp: str) -> int:
    """Return the first day of the month of a timestamp such as 2026-10-28T12:00:00+00:00."""
    try:
        return _first_day(timestamp[:7])
    except ValueError:
        raise LedgerDamaged(f"record has the invalid time `{timestamp[:40]}`") from None


@lru_cache(maxsize=1024)
def _first_day(month: str) -> int:
    return date.fromisoformat(f"{month}-01").toordinal()
