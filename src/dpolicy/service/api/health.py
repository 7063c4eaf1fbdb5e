"""Endpoints for operators: liveness, readiness, identity of the caller, metrics."""

from __future__ import annotations

from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.metrics import MEDIA_TYPE


def handle_live(call: ApiRequest) -> ApiResponse:
    """Return that the process responds."""
    return ApiResponse({"live": True})


def handle_ready(call: ApiRequest) -> ApiResponse:
    """Return 200 if the ledger is readable and has an active policy, else 503."""
    has_policy = call.decision_point.policy is not None
    return ApiResponse({"ready": has_policy, "policy": has_policy}, 200 if has_policy else 503)


def handle_whoami(call: ApiRequest) -> ApiResponse:
    """Return name, roles and grants of the caller."""
    grants = {label: sorted(values) for label, values in call.principal.grants.items()}
    return ApiResponse(
        {"name": call.principal.name, "roles": sorted(call.principal.roles), "grants": grants}
    )


def handle_metrics(call: ApiRequest) -> ApiResponse:
    """Return counters of this server and gauges of the ledger in the format of Prometheus."""

    def read_gauges(state: LedgerState) -> dict[str, float]:
        return {
            "dpolicy_ledger_sequence": state.sequence,
            "dpolicy_policy_sequence": state.policy_record,
            "dpolicy_releases": len(state.entries),
            "dpolicy_reservations_open": len(state.open_reservations),
            "dpolicy_proposals_open": sum(p.open for p in state.proposals.values()),
        }

    text = call.metrics.text(call.decision_point.read_state(read_gauges))
    return ApiResponse(chunks=iter([text.encode("utf-8")]))


_PUBLIC = frozenset[Role]()

ENDPOINTS = (
    Endpoint(
        "GET",
        "/health",
        "health",
        "Whether the server can decide releases.",
        handle_ready,
        _PUBLIC,
        "Readiness",
    ),
    Endpoint(
        "GET",
        "/health/live",
        "live",
        "Whether the process responds.",
        handle_live,
        _PUBLIC,
        "Liveness",
        blocks=False,
    ),
    Endpoint(
        "GET",
        "/health/ready",
        "ready",
        "Whether the server can decide releases.",
        handle_ready,
        _PUBLIC,
        "Readiness",
    ),
    Endpoint(
        "GET",
        "/v1/who",
        "who",
        "Name, roles and grants of the caller.",
        handle_whoami,
        EVERY_ROLE,
        "Caller",
        blocks=False,
    ),
    Endpoint(
        "GET",
        "/metrics",
        "metrics",
        "Metrics for Prometheus.",
        handle_metrics,
        frozenset({Role.AUDITOR, Role.OFFICER}),
        "",
        media_type=MEDIA_TYPE,
    ),
)
