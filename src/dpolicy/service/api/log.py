"""The log over HTTP: its head, its records, and the whole of it for other programs.

What the hash chain supports is told and no more: whoever keeps a head can ask for the records
behind it and compute every hash up to the newest, so that nothing before or between was changed.
There are no shorter proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dpolicy.errors import RequestRefused
from dpolicy.integrations.ledger_export import csv_lines, json_lines, registry_entries
from dpolicy.integrations.registry.registry_export import CURATOR_TYPES, PLACEHOLDER
from dpolicy.ledger.chain import GENESIS
from dpolicy.service.auth.principal import Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, QueryParameter

#: Text is sent in parts of about this size.
EXPORT_CHUNK_SIZE = 64_000


def handle_head(call: ApiRequest) -> ApiResponse:
    """The number and hash of the last record."""
    call.decision_point.read_state(lambda state: None)  # catches up with what other servers wrote
    found = call.decision_point.head
    return ApiResponse({"sequence": found.sequence, "head": found.digest.hex()})


def handle_records(call: ApiRequest) -> ApiResponse:
    """Records behind a number, with the hash before them and their own."""
    behind, limit = call.query["behind"], call.query["limit"]
    call.decision_point.read_state(lambda state: None)
    if behind > call.decision_point.head.sequence:
        raise RequestRefused("not-found", f"the ledger ends before record {behind}")
    before = next(call.decision_point.records(behind - 1)).digest if behind else GENESIS
    found = list(islice(call.decision_point.records(behind), limit))
    return ApiResponse(
        {
            "behind": {"sequence": behind, "head": before.hex()},
            "records": [
                {"sequence": r.sequence, "hash": r.digest.hex(), "payload": r.payload.decode()}
                for r in found
            ],
        }
    )


def handle_export_events(call: ApiRequest) -> ApiResponse:
    """Every event, a line each."""
    return ApiResponse(chunks=_parts(json_lines(call.decision_point)))


def handle_export_csv(call: ApiRequest) -> ApiResponse:
    """Every mechanism of every release, a line each."""
    return ApiResponse(chunks=_parts(csv_lines(call.decision_point)))


def handle_export_registry(call: ApiRequest) -> ApiResponse:
    """Every release that counts, as entries of the public registry of deployments."""
    query = call.query
    curator = (query["curator"], query["curator-type"])
    return ApiResponse(
        chunks=_parts(registry_entries(call.decision_point, query["release"], curator))
    )


def _parts(lines: Iterator[str]) -> Iterator[bytes]:
    """The same text in fewer pieces."""
    part: list[str] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size > EXPORT_CHUNK_SIZE:
            yield "".join(part).encode("utf-8")
            part, size = [], 0
    yield "".join(part).encode("utf-8")


_READ = frozenset({Role.AUDITOR, Role.OFFICER})
_RECORDS = {
    "behind": QueryParameter("The record behind which to start.", whole=True, default=0),
    "limit": QueryParameter("At most so many.", whole=True, least=1, most=1_000, default=100),
}
_REGISTRY = {
    "release": QueryParameter("Only this release."),
    "curator": QueryParameter("Who publishes.", default=PLACEHOLDER),
    "curator-type": QueryParameter(
        "What that is.", choices=tuple(CURATOR_TYPES), default="Industry"
    ),
}

ENDPOINTS = (
    Endpoint("GET", "/v1/log/head", "head", "The last record.", handle_head, _READ, "Head"),
    Endpoint(
        "GET",
        "/v1/log/records",
        "records",
        "Records and their hashes, from a known head on.",
        handle_records,
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
        handle_export_events,
        _READ,
        "",
        media_type="application/x-ndjson",
    ),
    Endpoint(
        "GET",
        "/v1/export/csv",
        "export-csv",
        "Every mechanism of every release.",
        handle_export_csv,
        _READ,
        "",
        media_type="text/csv; charset=utf-8",
    ),
    Endpoint(
        "GET",
        "/v1/export/registry",
        "export-registry",
        "Releases as entries of the registry.",
        handle_export_registry,
        _READ,
        "",
        query=_REGISTRY,
        media_type="application/yaml",
        problems=("not-found", "no-policy", "misused"),
    ),
)
