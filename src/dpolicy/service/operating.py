"""Whether the server lives and can decide, for those who run it."""

from __future__ import annotations

from dpolicy.service.endpoint import Answer, Call, Endpoint


def live(call: Call) -> Answer:
    """The process answers."""
    return Answer({"live": True})


def ready(call: Call) -> Answer:
    """The ledger can be read and a policy is in force."""
    in_force = call.point.policy is not None
    return Answer({"ready": in_force, "policy": in_force}, 200 if in_force else 503)


ENDPOINTS = (
    Endpoint("GET", "/health", "health", "Whether it can decide.", ready, frozenset(), "Health"),
    Endpoint(
        "GET", "/health/live", "live", "Whether it runs.", live, frozenset(), "Health", blocks=False
    ),
    Endpoint(
        "GET", "/health/ready", "ready", "Whether it can decide.", ready, frozenset(), "Health"
    ),
)
