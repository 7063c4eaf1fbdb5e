"""Export of a ledger: events as JSON lines, mechanisms as CSV, releases as registry entries."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO

from dpolicy.errors import OperationRejected
from dpolicy.integrations.registry import entry_text, registry_entry
from dpolicy.ledger.events import Event, event_author, from_bytes, release_body_in
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES, ReleaseEntry
from dpolicy.releases.body import release_from_body
from dpolicy.releases.meaning import write_out

COLUMNS = ("release", "sequence", "at", "by", "status", "mechanism", "kind", "unit", "attributes")


def json_lines(point: DecisionPoint) -> Iterator[str]:
    """Yield the stored bytes of every event as a line, oldest first."""
    for record in point.records():
        yield record.payload.decode("utf-8") + "\n"


def csv_lines(point: DecisionPoint) -> Iterator[str]:
    """Yield a CSV line for every mechanism of every release, with the status of the release."""
    yield _csv_line(COLUMNS)
    for event, entry in _charge_events(point, point.entries):
        body, meaning = release_body_in(event), point.meaning(entry)
        if meaning is not None:
            body = write_out(body, meaning)
        for position, fields in enumerate(body["mechanisms"], 1):
            yield _csv_line(
                (
                    body["release"],
                    entry.request_record,
                    event.at,
                    event_author(event),
                    entry.status,
                    fields.get("name", f"mechanism {position}"),
                    fields["mechanism"]["kind"],
                    fields.get("unit", ""),
                    " ".join(fields.get("attributes", ())),
                )
            )


def registry_entries(
    point: DecisionPoint, release: str | None, curator: tuple[str, str]
) -> Iterator[str]:
    """Yield YAML documents of the registry for every release that counts, or for one release.

    Raise `OperationRejected` before the first document if there is no active policy, or if the
    release does not exist or does not count.
    """
    policy, entries = point.policy, point.entries
    if policy is None:
        raise OperationRejected("no active policy; run `dpolicy apply` first", "no-policy")
    if release is not None:
        entries = {release: _spending_entry(release, entries.get(release))}
    spending = {name: entry for name, entry in entries.items() if entry.status in SPENDING_STATUSES}

    def documents() -> Iterator[str]:
        for number, (event, entry) in enumerate(_charge_events(point, spending)):
            request = release_from_body(release_body_in(event))
            meaning = point.meaning(entry)
            if meaning is None:
                raise OperationRejected(
                    f"the active policy cannot resolve `{request.id}`; relabel it first"
                )
            document = registry_entry(
                request, meaning, policy, event.at[:10], entry.status, curator
            )
            yield ("---\n" if number else "") + entry_text(document)

    return documents()


def _spending_entry(release: str, entry: ReleaseEntry | None) -> ReleaseEntry:
    """Return the entry of a release that counts; raise `OperationRejected` otherwise."""
    if entry is None:
        raise OperationRejected(f"there is no release `{release}`", "not-found")
    if entry.status not in SPENDING_STATUSES:
        raise OperationRejected(f"release `{release}` was {entry.status}: it spent nothing")
    return entry


def _charge_events(
    point: DecisionPoint, entries: Mapping[str, ReleaseEntry]
) -> Iterator[tuple[Event, ReleaseEntry]]:
    """Yield the event that determines the charge of each release, in the order of the ledger."""
    entries_by_record = {entry.charge_record: entry for entry in entries.values()}
    for record in point.records():
        if record.sequence in entries_by_record:
            yield from_bytes(record.payload), entries_by_record[record.sequence]


def _csv_line(values: tuple[object, ...]) -> str:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()
