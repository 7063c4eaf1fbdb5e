"""A ledger → text for other programs: events as JSON lines, mechanisms as CSV, registry entries."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO

from dpolicy.errors import OperationRejected
from dpolicy.integrations.registry.registry_export import entry_text, registry_entry
from dpolicy.ledger.events import Event, event_author, from_bytes, release_body_in
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import SPENDING_STATUSES, ReleaseEntry
from dpolicy.releases.body import release_from_body

COLUMNS = ("release", "sequence", "at", "by", "status", "mechanism", "kind", "unit", "attributes")


def json_lines(point: DecisionPoint) -> Iterator[str]:
    """Every event as it is kept, oldest first."""
    for record in point.records():
        yield record.payload.decode("utf-8") + "\n"


def csv_lines(point: DecisionPoint) -> Iterator[str]:
    """Every mechanism of every release, with how the release stands."""
    yield _csv(COLUMNS)
    for event, entry in _charged(point, point.entries):
        body = release_body_in(event)
        for position, said in enumerate(body["mechanisms"], 1):
            yield _csv(
                (
                    body["release"],
                    entry.request_record,
                    event.at,
                    event_author(event),
                    entry.status,
                    said.get("name", f"mechanism {position}"),
                    said["mechanism"]["kind"],
                    said.get("unit", ""),
                    " ".join(said.get("attributes", ())),
                )
            )


def registry_entries(
    point: DecisionPoint, release: str | None, curator: tuple[str, str]
) -> Iterator[str]:
    """Every release that counts, or one, as YAML documents of the public registry."""
    policy, entries = point.policy, point.entries
    if policy is None:
        said = "losses are told under a policy: `dpolicy apply` puts one in force"
        raise OperationRejected(said, "no-policy")
    if release is not None:
        entries = {release: _spent(release, entries.get(release))}
    counted = {name: entry for name, entry in entries.items() if entry.status in SPENDING_STATUSES}

    def documents() -> Iterator[str]:
        for number, (event, entry) in enumerate(_charged(point, counted)):
            asked = release_from_body(release_body_in(event))
            found = registry_entry(asked, policy, event.at[:10], entry.status, curator)
            yield ("---\n" if number else "") + entry_text(found)

    return documents()


def _spent(release: str, entry: ReleaseEntry | None) -> ReleaseEntry:
    """A release that counts."""
    if entry is None:
        raise OperationRejected(f"there is no release `{release}`", "not-found")
    if entry.status not in SPENDING_STATUSES:
        raise OperationRejected(f"the release `{release}` was {entry.status}: nothing was spent")
    return entry


def _charged(
    point: DecisionPoint, entries: Mapping[str, ReleaseEntry]
) -> Iterator[tuple[Event, ReleaseEntry]]:
    """The events that releases are charged for, in the order of the ledger."""
    wanted = {entry.charge_record: entry for entry in entries.values()}
    for record in point.records():
        if record.sequence in wanted:
            yield from_bytes(record.payload), wanted[record.sequence]


def _csv(values: tuple[object, ...]) -> str:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
