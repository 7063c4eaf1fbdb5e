"""The log over HTTP: its head, its records, and the whole of it for other programs.

What the hash chain supports is told and no more: whoever keeps a head can ask for the records
behind it and compute every hash up to the newest, so that nothing before or between was changed.
There are no shorter proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dpolicy.errors import Refused
from dpolicy.integrations.history import csv_lines, json_lines, registry_entries
from dpolicy.integrations.registry import CURATOR_TYPES, TO_FILL_IN
from dpolicy.ledger.events import GENESIS
from dpolicy.service.endpoint import Answer, Call, Endpoint, Parameter
from dpolicy.service.principal import Role

#: Text is sent in parts of about this size.
PART = 64_000


def head(call: Call) -> Answer:
    """The number and hash of the last record."""
    call.point.consult(lambda state: None)  # catches up with what other servers wrote
    found = call.point.position
    return Answer({"sequence": found.sequence, "head": found.digest.hex()})


def records(call: Call) -> Answer:
    """Records behind a number, with the hash before them and their own."""
    behind, limit = call.query["behind"], call.query["limit"]
    call.point.consult(lambda state: None)
    if behind > call.point.position.sequence:
        raise Refused("not-found", f"the ledger ends before record {behind}")
    before = next(call.point.records(behind - 1)).digest if behind else GENESIS
    found = list(islice(call.point.records(behind), limit))
    return Answer(
        {
            "behind": {"sequence": behind, "head": before.hex()},
            "records": [
                {"sequence": r.sequence, "hash": r.digest.hex(), "payload": r.payload.decode()}
                for r in found
            ],
        }
    )


def export_events(call: Call) -> Answer:
    """Every event, a line each."""
    return Answer(parts=_parts(json_lines(call.point)))


def export_csv(call: Call) -> Answer:
    """Every mechanism of every release, a line each."""
    return Answer(parts=_parts(csv_lines(call.point)))


def export_registry(call: Call) -> Answer:
    """Every release that counts, as entries of the public registry of deployments."""
    query = call.query
    curator = (query["curator"], query["curator-type"])
    return Answer(parts=_parts(registry_entries(call.point, query["release"], curator)))


def _parts(lines: Iterator[str]) -> Iterator[bytes]:
    """The same text in fewer pieces."""
    part: list[str] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size > PART:
            yield "".join(part).encode("utf-8")
            part, size = [], 0
    yield "".join(part).encode("utf-8")


_READ = frozenset({Role.AUDITOR, Role.OFFICER})
_RECORDS = {
    "behind": Parameter("The record behind which to start.", whole=True, default=0),
    "limit": Parameter("At most so many.", whole=True, least=1, most=1_000, default=100),
}
_REGISTRY = {
    "release": Parameter("Only this release."),
    "curator": Parameter("Who publishes.", default=TO_FILL_IN),
    "curator-type": Parameter("What that is.", choices=tuple(CURATOR_TYPES), default="Industry"),
}

ENDPOINTS = (
    Endpoint("GET", "/v1/log/head", "head", "The last record.", head, _READ, "Head"),
    Endpoint(
        "GET",
        "/v1/log/records",
        "records",
        "Records and their hashes, from a known head on.",
        records,
        _READ,
        "Records",
        query=_RECORDS,
        problems=("not-found",),
    ),
    Endpoint(
        "GET",
        "/v1/export/events",
        "export-events",
        "Every event as a line of JSON.",
        export_events,
        _READ,
        "",
        media_type="application/x-ndjson",
    ),
    Endpoint(
        "GET",
        "/v1/export/csv",
        "export-csv",
        "Every mechanism of every release.",
        export_csv,
        _READ,
        "",
        media_type="text/csv; charset=utf-8",
    ),
    Endpoint(
        "GET",
        "/v1/export/registry",
        "export-registry",
        "Releases as entries of the registry.",
        export_registry,
        _READ,
        "",
        query=_REGISTRY,
        media_type="application/yaml",
        problems=("not-found", "no-policy", "misused"),
    ),
)
