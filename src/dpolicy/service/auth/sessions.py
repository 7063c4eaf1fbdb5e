"""A token typed into a form → a cookie, so that people can use the pages of the dashboard.

The cookie holds the token itself: servers share nothing but the ledger, and a token that is taken
out of the access file ends every session. No script can read it, and no other site can send it.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dpolicy.errors import RequestRefused
from dpolicy.service.http.middleware import COOKIE, identify_caller


def session_routes() -> list[Route]:
    """Logging in and out; the form itself is a page."""
    return [
        Route("/login", handle_login, methods=["POST"]),
        Route("/logout", handle_logout, methods=["POST"]),
    ]


async def handle_login(request: Request) -> Response:
    """Check the token of a form and keep it in a cookie."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    token = form.get("token", [""])[0].strip()
    try:
        await identify_caller(request.state.access, token)
    except RequestRefused:
        return RedirectResponse("/login?failed=1", 303)
    response = RedirectResponse(_place(form.get("next", ["/"])[0]), 303)
    response.set_cookie(
        COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return response


async def handle_logout(request: Request) -> Response:
    """Forget the token."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _place(target: str) -> str:
    """Where to go next: a path of ours and nowhere else."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
