"""Login and logout: a cookie with the token, for the pages of the dashboard.

The cookie contains the token itself, because servers share only the ledger. Removing a token from
the access file ends its sessions. Scripts cannot read the cookie, and other sites cannot send it.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dpolicy.errors import RequestRefused
from dpolicy.service.http.admission import COOKIE, identify_caller


def session_routes() -> list[Route]:
    """Return the routes for the login form and the logout button; the form is a dashboard page."""
    return [
        Route("/login", handle_login, methods=["POST"]),
        Route("/logout", handle_logout, methods=["POST"]),
    ]


async def handle_login(request: Request) -> Response:
    """Check the token of the form and set the cookie."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    token = form.get("token", [""])[0].strip()
    try:
        await identify_caller(request.state.access, token)
    except RequestRefused:
        return RedirectResponse("/login?failed=1", 303)
    response = RedirectResponse(_safe_target(form.get("next", ["/"])[0]), 303)
    response.set_cookie(
        COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return response


async def handle_logout(request: Request) -> Response:
    """Delete the cookie."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _safe_target(target: str) -> str:
    """Return `target` if it is a path of this server, else `/`."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
