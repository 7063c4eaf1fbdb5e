"""Checks of a ledger against acknowledged statuses, and against sums that are computed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.faults.lifecycles import lifecycle, request

from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import Event, ReleaseCommitted, ReleaseDecided, ReleaseVoided
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.audits.audit import audit_ledger, records_with_events
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.releases.body import Body


def lost_releases(confirmed: Mapping[str, str], stored: Mapping[str, str]) -> list[str]:
    """Return the acknowledged releases that are missing or have an earlier or foreign status.

    A later status is allowed: the step after the last acknowledged one may have been committed
    before the process was killed.
    """
    return [
        release
        for release, status in confirmed.items()
        if stored.get(release) not in lifecycle(release)[lifecycle(release).index(status) :]
    ]


def statuses(point: DecisionPoint) -> dict[str, str]:
    """Return the status of every release."""
    return {release: entry.status for release, entry in point.entries.items()}


def spent_by_events(events: Iterable[Event]) -> dict[str, Fraction]:
    """Add up the ε of the charged releases of a ledger, for each rule of the policy."""
    charged: dict[str, Body] = {}
    for event in events:
        match event:
            case ReleaseDecided(allowed=True):
                charged[event.release] = event.body
            case ReleaseCommitted(body=Mapping()):
                charged[event.release] = event.body or {}
            case ReleaseVoided():
                del charged[event.release]
    total = {"all": Fraction(0), "zips": Fraction(0)}
    for body in charged.values():
        for fields in body["mechanisms"]:
            epsilon = fields["mechanism"]["epsilon"]
            total["all"] += epsilon
            total["zips"] += epsilon if "zip" in fields["attributes"] else 0
    return total


def spent_by_status(budgets: Iterable[RuleStatus]) -> dict[str, Fraction]:
    """Return the spent ε that a decision point displays, as the decimals that it prints."""
    return {b.rule.name: Fraction(repr(b.spent["epsilon"])) for b in budgets}


def check_ledger(store: LedgerStore, point: DecisionPoint) -> None:
    """Check the balances against the events, and recompute every decision."""
    assert spent_by_status(point.budgets()) == spent_by_events(
        event for _, event in records_with_events(store)
    )
    assert audit_ledger(store).findings == ()


def check_retry(point: DecisionPoint, release: str) -> str:
    """Check that a retry replays a recorded decision, or charges an unknown release once.

    Return the status of the release.
    """
    before = point.entries.get(release)
    if before is not None and before.status == "voided":
        with pytest.raises(OperationRejected, match="voided"):
            request(point, release)
        return before.status
    first = request(point, release)
    second = request(point, release)
    assert first.replayed == (before is not None)
    assert second == replace(first, replayed=True)
    assert first.allowed == (lifecycle(release)[0] != "denied")
    entry = point.entries[release]
    assert before is None or entry == before
    return entry.status
