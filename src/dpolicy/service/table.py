"""All lines of the API, in the order in which they are matched and documented."""

from __future__ import annotations

from dpolicy.service import (
    authzen,
    batches,
    budgets,
    history,
    operating,
    policies,
    proposals,
    releases,
)
from dpolicy.service.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *releases.ENDPOINTS,
    *batches.ENDPOINTS,
    *budgets.ENDPOINTS,
    *policies.ENDPOINTS,
    *proposals.ENDPOINTS,
    *history.ENDPOINTS,
    *authzen.ENDPOINTS,
    *operating.ENDPOINTS,
)
