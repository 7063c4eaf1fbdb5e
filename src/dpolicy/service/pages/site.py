"""The pages → the routes that the application serves beside its API.

`request.app.state.point` is the decision point, `request.app.state.access()` what may be done by
whom, `request.state.principal` the verified caller. Whoever is not logged in is sent to `/login`
before a page is asked for; paths below `/static/` and `/login` are open to everybody.
"""

from __future__ import annotations

from starlette.routing import Mount, Route


def routes() -> list[Route | Mount]:
    """Every page."""
    return []
