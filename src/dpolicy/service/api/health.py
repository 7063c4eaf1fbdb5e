"""For those who run the server: whether it lives, whether it can decide, what it did."""

from __future__ import annotations

from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint
from dpolicy.service.http.metrics import MEDIA_TYPE


def handle_live(call: ApiRequest) -> ApiResponse:
    """The process answers."""
    return ApiResponse({"live": True})


def handle_ready(call: ApiRequest) -> ApiResponse:
    """The ledger can be read and a policy is in force; if not, 503."""
    in_force = call.decision_point.policy is not None
    return ApiResponse({"ready": in_force, "policy": in_force}, 200 if in_force else 503)


def handle_whoami(call: ApiRequest) -> ApiResponse:
    """The caller, as the server knows them."""
    grants = {label: sorted(values) for label, values in call.principal.grants.items()}
    return ApiResponse(
        {"name": call.principal.name, "roles": sorted(call.principal.roles), "grants": grants}
    )


def handle_metrics(call: ApiRequest) -> ApiResponse:
    """Counters of this server and figures of the ledger, for Prometheus."""

    def look(state: LedgerState) -> dict[str, float]:
        return {
            "dpolicy_ledger_sequence": state.sequence,
            "dpolicy_policy_sequence": state.policy_record,
            "dpolicy_releases": len(state.entries),
            "dpolicy_reservations_open": len(state.open_reservations),
            "dpolicy_proposals_open": sum(p.open for p in state.proposals.values()),
        }

    text = call.metrics.text(call.decision_point.read_state(look))
    return ApiResponse(chunks=iter([text.encode("utf-8")]))


_OPEN = frozenset[Role]()

ENDPOINTS = (
    Endpoint("GET", "/health", "health", "Whether it can decide.", handle_ready, _OPEN, "Ready"),
    Endpoint(
        "GET", "/health/live", "live", "Whether it runs.", handle_live, _OPEN, "Live", blocks=False
    ),
    Endpoint(
        "GET", "/health/ready", "ready", "Whether it can decide.", handle_ready, _OPEN, "Ready"
    ),
    Endpoint(
        "GET", "/v1/who", "who", "Who you are here.", handle_whoami, EVERY_ROLE, "Who", blocks=False
    ),
    Endpoint(
        "GET",
        "/metrics",
        "metrics",
        "Figures for Prometheus.",
        handle_metrics,
        frozenset({Role.AUDITOR, Role.OFFICER}),
        "",
        media_type=MEDIA_TYPE,
    ),
)
