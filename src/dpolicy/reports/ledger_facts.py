"""Facts of a ledger that reports are made from: releases, denials, policy changes and the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    ReleaseDecided,
    event_author,
    from_bytes,
    release_body_in,
    release_day,
)
from dpolicy.ledger.store import LedgerStore
from dpolicy.pdp.audits.audit import AuditReport, audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.rule_status import RuleStatus, rank_by_use
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES, ReleaseEntry
from dpolicy.releases.body import release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.meaning import ReleaseMeaning
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy


@dataclass(frozen=True, slots=True)
class ReleaseFact:
    """Release that counts as spent: the day on which it happened, its author and its meaning.

    `meaning` is None if no policy could complete it yet.
    """

    release: Release
    day: str
    by: str
    status: str
    meaning: ReleaseMeaning | None

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes that the release uses, sorted."""
        return tuple(sorted({name for m in self.release.mechanisms for name in m.attributes}))


@dataclass(frozen=True, slots=True)
class Denial:
    """Denied release: its day, its author, and the rules that it would have exceeded."""

    release: str
    day: str
    by: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Policy that became active: who applied it, why, and which conflicts were accepted."""

    sequence: int
    day: str
    by: str
    because: str
    digest: str
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Facts of a ledger up to its last verified record, at the time of a report.

    `statuses` are the kept cumulative rules, most used first; `releases` are in the order of their
    days.
    """

    ledger: str
    generated: str
    policy: CompiledPolicy
    statuses: tuple[RuleStatus, ...]
    releases: tuple[ReleaseFact, ...]
    denials: tuple[Denial, ...]
    changes: tuple[PolicyChange, ...]
    open_proposals: int
    audit: AuditReport

    @property
    def exceeded_rules(self) -> tuple[RuleStatus, ...]:
        """Rules that recorded releases exceed."""
        return tuple(status for status in self.statuses if not status.holds)

    @property
    def days(self) -> Mapping[str, str]:
        """The day of each release by its id."""
        return {fact.release.id: fact.day for fact in self.releases}


def collect_facts(store: LedgerStore, point: DecisionPoint, now: datetime) -> LedgerFacts:
    """Read all facts of a ledger and verify it.

    Raise `OperationRejected` if the ledger has no active policy.
    """
    policy = point.policy
    if policy is None:
        raise OperationRejected("no active policy; run `dpolicy apply` first", "no-policy")
    events = {record.sequence: from_bytes(record.payload) for record in point.records()}
    releases = list(_release_facts(point, events))
    return LedgerFacts(
        ledger=store.name,
        generated=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        policy=policy,
        statuses=tuple(sorted(point.budgets(), key=rank_by_use)),
        releases=tuple(sorted(releases, key=lambda fact: (fact.day, fact.release.id))),
        denials=tuple(_denials(events)),
        changes=tuple(_policy_changes(events)),
        open_proposals=sum(1 for proposal in point.proposals.values() if proposal.open),
        audit=audit_ledger(store),
    )


def _release_facts(point: DecisionPoint, events: Mapping[int, Event]) -> Iterator[ReleaseFact]:
    """Yield the releases that are charged, as the record of their charge describes them."""
    for entry in point.entries.values():
        if entry.status in SPENDING_STATUSES:
            yield _release_fact(point, entry, events)


def _release_fact(
    point: DecisionPoint, entry: ReleaseEntry, events: Mapping[int, Event]
) -> ReleaseFact:
    request = events[entry.request_record]
    body = release_body_in(events[entry.charge_record])
    by = str(body.get("by", "")) or event_author(request)
    meaning = point.meaning(entry)
    return ReleaseFact(release_from_body(body), release_day(request), by, entry.status, meaning)


def _denials(events: Mapping[int, Event]) -> Iterator[Denial]:
    for event in events.values():
        if isinstance(event, ReleaseDecided) and not event.allowed:
            decision = Decision.from_json(json.loads(event.answer))
            others = ["not covered by a rule"] if decision.uncovered else []
            others += ["error in a predicate"] if decision.predicate_errors else []
            rules = (*decision.exceeded_rules, *others)
            by = str(event.body.get("by", "")) or event.by
            yield Denial(event.release, event.at[:10], by, rules)


def _policy_changes(events: Mapping[int, Event]) -> Iterator[PolicyChange]:
    for sequence, event in events.items():
        if isinstance(event, PolicyApplied):
            yield PolicyChange(
                sequence, event.at[:10], event.by, event.because, event.digest, event.accepted
            )
