"""A ledger and what was acknowledged about it → whether they agree; sums are made by hand."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.faults.nursery import ROOT, Nursery
from tests.faults.requests import ask, story

from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import Event, ReleaseCommitted, ReleaseDecided, ReleaseVoided
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.audit import audit_ledger, records_with_events
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.releases.body import Body


class Deciders(Nursery):
    """A nursery of processes that use a decision point."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.deciders"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._codes = []


def lost(confirmed: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """The acknowledged releases that are not there, or stand otherwise than was acknowledged.

    The step after the last acknowledged one may have been taken: its answer was never heard.
    """
    return [
        release
        for release, status in confirmed.items()
        if found.get(release) not in story(release)[story(release).index(status) :]
    ]


def statuses(point: DecisionPoint) -> dict[str, str]:
    """How every release stands."""
    return {release: entry.status for release, entry in point.entries.items()}


def sums(events: Iterable[Event]) -> dict[str, Fraction]:
    """What the releases in a ledger add up to, for each rule of the policy."""
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
        for said in body["mechanisms"]:
            epsilon = said["mechanism"]["epsilon"]
            total["all"] += epsilon
            total["zips"] += epsilon if "zip" in said["attributes"] else 0
    return total


def told(budgets: Iterable[RuleStatus]) -> dict[str, Fraction]:
    """What a decision point says was spent; the decimal that a number prints as is meant."""
    return {b.rule.name: Fraction(repr(b.spent["epsilon"])) for b in budgets}


def check_whole(store: LedgerStore, point: DecisionPoint) -> None:
    """Budgets are what the ledger adds up to, and every decision comes out as it was made."""
    assert told(point.budgets()) == sums(event for _, event in records_with_events(store))
    assert audit_ledger(store).findings == ()


def check_retry(point: DecisionPoint, release: str) -> str:
    """Asking again replays what is known, and charges what is not known once; how it stands."""
    known = point.entries.get(release)
    if known is not None and known.status == "voided":
        with pytest.raises(OperationRejected, match="voided"):
            ask(point, release)
        return known.status
    first = ask(point, release)
    again = ask(point, release)
    assert first.replayed == (known is not None)
    assert again == replace(first, replayed=True)
    assert first.allowed == (story(release)[0] != "denied")
    entry = point.entries[release]
    assert known is None or entry == known
    return entry.status
