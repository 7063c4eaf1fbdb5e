"""Export of a ledger: events as JSON lines, mechanisms as CSV, releases as registry entries."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO

from dpolicy.decisions.release_totals import all_units, costs_by_unit
from dpolicy.errors import OperationRejected
from dpolicy.integrations.registry import entry_text, registry_entry
from dpolicy.integrations.registry.registry_export import DEFAULT_DELTA
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import Event, event_author, from_bytes, release_body_in, release_day
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES, ReleaseEntry
from dpolicy.privacy.cost_report import round_up_to_printed_float
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.meaning import ReleaseMeaning, write_out
from dpolicy.rules.compiler import CompiledPolicy

COLUMNS = (
    *("release", "sequence", "at", "by", "status", "mechanism", "kind", "unit", "attributes"),
    *("released", "author", "labels", "from", "to", "parameters", "epsilon", "delta", "because"),
)

#: First characters with which a spreadsheet program would run a free text as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def json_lines(point: DecisionPoint) -> Iterator[str]:
    """Yield the stored bytes of every event as a line, oldest first."""
    for record in point.records():
        yield record.payload.decode("utf-8") + "\n"


def csv_lines(point: DecisionPoint) -> Iterator[str]:
    """Yield a CSV line for every mechanism of every release, with the status of the release.

    `epsilon` is that of the mechanism alone at `delta`, for its own unit, rounded up; both are
    empty if the active policy gives no bound.
    """
    policy = point.policy
    yield _csv_line(COLUMNS)
    for event, entry in _charge_events(point, point.entries):
        request = point.event(entry.request_record)
        body, meaning = release_body_in(event), point.meaning(entry)
        losses = _losses(body, meaning, policy)
        if meaning is not None:
            body = write_out(body, meaning)
        for position, (fields, loss) in enumerate(zip(body["mechanisms"], losses, strict=True), 1):
            yield _csv_line(
                (
                    *(body["release"], entry.request_record, event.at, event_author(event)),
                    entry.status,
                    fields.get("name", f"mechanism {position}"),
                    fields["mechanism"]["kind"],
                    fields.get("unit", ""),
                    " ".join(fields.get("attributes", ())),
                    *(release_day(request), body.get("by", "")),
                    *_details(fields),
                    *loss,
                    getattr(request, "because", ""),
                )
            )


def _details(fields: Body) -> tuple[str, ...]:
    """Return labels, first and last day of the data, and parameters of a mechanism as texts."""
    labels = fields.get("labels", {}).items()
    time = fields.get("time", {})
    parameters = {key: value for key, value in fields["mechanism"].items() if key != "kind"}
    return (
        " ".join(f"{name}={_label_text(value)}" for name, value in labels),
        time.get("from", ""),
        time.get("to", ""),
        encode_canonical(parameters).decode("utf-8"),
    )


def _label_text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "+".join(value)


def _losses(
    body: Body, meaning: ReleaseMeaning | None, policy: CompiledPolicy | None
) -> list[tuple[str, str]]:
    """Return ε and δ of each mechanism of a release for its own unit, as texts."""
    if meaning is None or policy is None:
        return [("", "")] * len(body["mechanisms"])
    units = all_units(meaning, policy)
    delta = policy.policy_set.accounting.delta or DEFAULT_DELTA
    losses = []
    for request, own in zip(release_from_body(body).mechanisms, meaning.mechanisms, strict=True):
        report = costs_by_unit(request, own, units, policy)[list(units).index(own.unit)]
        at_delta = max(delta, 2 * report.delta)
        epsilon = report.epsilon(at_delta)
        numbers = None if epsilon is None else (epsilon, round_up_to_printed_float(at_delta))
        losses.append(("", "") if numbers is None else (repr(numbers[0]), repr(numbers[1])))
    return losses


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
            day = release_day(point.event(entry.request_record))
            document = registry_entry(request, meaning, policy, day, entry.status, curator)
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
    """Return a line in which a spreadsheet program runs no text as a formula."""
    cells = [
        f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
        for value in values
    ]
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
