"""Table of all endpoints, in the order in which the router matches them."""

from __future__ import annotations

from dpolicy.service.api import (
    authzen,
    batches,
    budgets,
    health,
    log,
    policies,
    proposals,
    releases,
    submit_many,
)
from dpolicy.service.http.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *releases.ENDPOINTS,
    *submit_many.ENDPOINTS,
    *batches.ENDPOINTS,
    *budgets.ENDPOINTS,
    *policies.ENDPOINTS,
    *proposals.ENDPOINTS,
    *log.ENDPOINTS,
    *authzen.ENDPOINTS,
    *health.ENDPOINTS,
)
