"""All lines of the API, in the order in which they are matched and documented."""

from __future__ import annotations

from dpolicy.service import operating, releases
from dpolicy.service.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *releases.ENDPOINTS,
    *operating.ENDPOINTS,
)
