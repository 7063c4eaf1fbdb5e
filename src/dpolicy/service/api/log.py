"""Endpoints for the ledger: head, records and exports.

A client that has stored a head can read the following records and recompute every hash up to the
new head. This proves that no record up to the new head was changed. The hash chain has no shorter
proofs, and the API offers none.
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

#: Approximate number of characters in one chunk of an export.
EXPORT_CHUNK_SIZE = 64_000


def handle_head(call: ApiRequest) -> ApiResponse:
    """Return number and hash of the last record."""
    call.decision_point.read_entries(lambda state: None)  # reads new records of other servers
    head = call.decision_point.head
    return ApiResponse({"sequence": head.sequence, "head": head.digest.hex()})


def handle_records(call: ApiRequest) -> ApiResponse:
    """Return the records after record `behind`, with their hashes and the hash before them."""
    behind, limit = call.query["behind"], call.query["limit"]
    call.decision_point.read_entries(lambda state: None)
    if behind > call.decision_point.head.sequence:
        raise RequestRefused("not-found", f"the ledger has no record {behind}")
    previous = next(call.decision_point.records(behind - 1)).digest if behind else GENESIS
    records = islice(call.decision_point.records(behind), limit)
    return ApiResponse(
        {
            "behind": {"sequence": behind, "head": previous.hex()},
            "records": [
                {"sequence": r.sequence, "hash": r.digest.hex(), "payload": r.payload.decode()}
                for r in records
            ],
        }
    )


def handle_export_events(call: ApiRequest) -> ApiResponse:
    """Return every event as one line of JSON."""
    return ApiResponse(chunks=_join_lines(json_lines(call.decision_point)))


def handle_export_csv(call: ApiRequest) -> ApiResponse:
    """Return every mechanism of every release as one line of CSV."""
    return ApiResponse(chunks=_join_lines(csv_lines(call.decision_point)))


def handle_export_registry(call: ApiRequest) -> ApiResponse:
    """Return every charged release as an entry of the public registry of deployments."""
    query = call.query
    curator = (query["curator"], query["curator-type"])
    return ApiResponse(
        chunks=_join_lines(registry_entries(call.decision_point, query["release"], curator))
    )


def _join_lines(lines: Iterator[str]) -> Iterator[bytes]:
    """Join lines into chunks of about `EXPORT_CHUNK_SIZE` characters."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size > EXPORT_CHUNK_SIZE:
            yield "".join(chunk).encode("utf-8")
            chunk, size = [], 0
    yield "".join(chunk).encode("utf-8")


_READERS = frozenset({Role.AUDITOR, Role.OFFICER})
_RECORDS_PARAMETERS = {
    "behind": QueryParameter("Record number; only records after it.", integer=True, default=0),
    "limit": QueryParameter(
        "Maximum number of records.", integer=True, minimum=1, maximum=1_000, default=100
    ),
}
_REGISTRY_PARAMETERS = {
    "release": QueryParameter("Release to export; default: all."),
    "curator": QueryParameter("Name of the publishing organisation.", default=PLACEHOLDER),
    "curator-type": QueryParameter(
        "Type of organisation.", choices=tuple(CURATOR_TYPES), default="Industry"
    ),
}

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/log/head",
        "head",
        "Number and hash of the last record.",
        handle_head,
        _READERS,
        "Head",
    ),
    Endpoint(
        "GET",
        "/v1/log/records",
        "records",
        "Records after a given record, with their hashes.",
        handle_records,
        _READERS,
        "Records",
        query=_RECORDS_PARAMETERS,
        problems=("not-found",),
    ),
    Endpoint(
        "GET",
        "/v1/export/events",
        "export-events",
        "All events, one line of JSON each.",
        handle_export_events,
        _READERS,
        "",
        media_type="application/x-ndjson",
    ),
    Endpoint(
        "GET",
        "/v1/export/csv",
        "export-csv",
        "All mechanisms of all releases as CSV.",
        handle_export_csv,
        _READERS,
        "",
        media_type="text/csv; charset=utf-8",
    ),
    Endpoint(
        "GET",
        "/v1/export/registry",
        "export-registry",
        "Charged releases as entries of the public registry.",
        handle_export_registry,
        _READERS,
        "",
        query=_REGISTRY_PARAMETERS,
        media_type="application/yaml",
        problems=("not-found", "no-policy", "misused"),
    ),
)
