"""For those who run the server: whether it lives, whether it can decide, what it did."""

from __future__ import annotations

from dpolicy.enforcement.state import State
from dpolicy.service.endpoint import Answer, Call, Endpoint
from dpolicy.service.metrics import MEDIA_TYPE
from dpolicy.service.principal import EVERY_ROLE, Role


def live(call: Call) -> Answer:
    """The process answers."""
    return Answer({"live": True})


def ready(call: Call) -> Answer:
    """The ledger can be read and a policy is in force; if not, 503."""
    in_force = call.point.policy is not None
    return Answer({"ready": in_force, "policy": in_force}, 200 if in_force else 503)


def who(call: Call) -> Answer:
    """The caller, as the server knows them."""
    grants = {label: sorted(values) for label, values in call.principal.grants.items()}
    return Answer(
        {"name": call.principal.name, "roles": sorted(call.principal.roles), "grants": grants}
    )


def metrics(call: Call) -> Answer:
    """Counters of this server and figures of the ledger, for Prometheus."""

    def look(state: State) -> dict[str, float]:
        return {
            "dpolicy_ledger_sequence": state.sequence,
            "dpolicy_policy_sequence": state.policy_at,
            "dpolicy_releases": len(state.entries),
            "dpolicy_reservations_open": len(state.open),
            "dpolicy_proposals_open": sum(p.open for p in state.proposals.values()),
        }

    text = call.metrics.text(call.point.consult(look))
    return Answer(parts=iter([text.encode("utf-8")]))


_OPEN = frozenset[Role]()

ENDPOINTS = (
    Endpoint("GET", "/health", "health", "Whether it can decide.", ready, _OPEN, "Ready"),
    Endpoint("GET", "/health/live", "live", "Whether it runs.", live, _OPEN, "Live", blocks=False),
    Endpoint("GET", "/health/ready", "ready", "Whether it can decide.", ready, _OPEN, "Ready"),
    Endpoint("GET", "/v1/who", "who", "Who you are here.", who, EVERY_ROLE, "Who", blocks=False),
    Endpoint(
        "GET",
        "/metrics",
        "metrics",
        "Figures for Prometheus.",
        metrics,
        frozenset({Role.AUDITOR, Role.OFFICER}),
        "",
        media_type=MEDIA_TYPE,
    ),
)
