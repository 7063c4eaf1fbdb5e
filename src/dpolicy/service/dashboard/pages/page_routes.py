"""Routes of the pages, each with the roles that may use it.

A handler reads `request.app.state.point` (the decision point), `request.app.state.access()` (the
access rules) and `request.state.principal` (the authenticated caller). The middleware redirects a
caller without a token to `/login`; `/login` and paths below `/static/` need no token.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dpolicy.errors import DPolicyError
from dpolicy.service.auth.principal import EVERY_ROLE, Role
from dpolicy.service.dashboard.pages import form_pages, read_pages
from dpolicy.service.dashboard.pages.rendering import STATIC, render_page, wants_json
from dpolicy.service.http.problem_details import PROBLEMS, error_response, problem_from_error

#: Roles that may read the whole ledger, and roles that may preview a policy; as in the API.
AUDIT = frozenset({Role.AUDITOR, Role.OFFICER})
PLAN = frozenset({Role.AUDITOR, Role.APPROVER, Role.OFFICER})
OFFICER = frozenset({Role.OFFICER})
ANSWER = frozenset({Role.APPROVER, Role.OFFICER})
PUBLIC_PAGE_ROLES = frozenset[Role]()

_log = logging.getLogger("dpolicy")


class PageRoute(NamedTuple):
    """Route of one page. A page without roles is public."""

    path: str
    handler: Callable[..., Any]
    roles: frozenset[Role]
    method: str = "GET"


PAGES = (
    PageRoute("/", read_pages.handle_overview, EVERY_ROLE),
    PageRoute("/rule", read_pages.handle_rule, EVERY_ROLE),
    PageRoute("/rule.svg", read_pages.handle_rule_diagram, EVERY_ROLE),
    PageRoute("/spent", read_pages.handle_spent, EVERY_ROLE),
    PageRoute("/releases", read_pages.handle_release_list, EVERY_ROLE),
    PageRoute("/releases/{release:path}", read_pages.handle_release, EVERY_ROLE),
    PageRoute("/check", form_pages.handle_check, EVERY_ROLE),
    PageRoute("/check", form_pages.handle_check, EVERY_ROLE, "POST"),
    PageRoute("/policy", form_pages.handle_policy, EVERY_ROLE),
    PageRoute("/policy", form_pages.handle_policy, PLAN, "POST"),
    PageRoute("/policy/apply", form_pages.handle_apply_form, OFFICER, "POST"),
    PageRoute("/approvals", form_pages.handle_approvals, EVERY_ROLE),
    PageRoute("/approvals/{proposal}", form_pages.handle_answer_form, ANSWER, "POST"),
    PageRoute("/rounds", form_pages.handle_rounds, OFFICER),
    PageRoute("/rounds", form_pages.handle_rounds, OFFICER, "POST"),
    PageRoute("/log", read_pages.handle_log, AUDIT),
    PageRoute("/login", read_pages.handle_login_form, PUBLIC_PAGE_ROLES),
)


def page_routes() -> list[Route | Mount]:
    """Return the routes of all pages and of the static files."""
    routes = [Route(page.path, _endpoint(page), methods=[page.method]) for page in PAGES]
    return [*routes, Mount("/static", StaticFiles(directory=STATIC))]


def _endpoint(page: PageRoute) -> Callable[[Request], Any]:
    """Return an endpoint that checks the roles and shows errors as a page."""

    async def serve(request: Request) -> Response:
        request.state.operation = "page"
        principal = request.state.principal
        if page.roles and (principal is None or not page.roles & principal.roles):
            needed = " or ".join(sorted(page.roles))
            return render_page(
                request, "problem.html", None, 403, problem=f"missing role: {needed}"
            )
        try:
            if inspect.iscoroutinefunction(page.handler):
                response = await page.handler(request)
            else:
                response = await run_in_threadpool(page.handler, request)
        except DPolicyError as error:
            return _render_error(request, error)
        assert isinstance(response, Response)
        return response

    return serve


def _render_error(request: Request, error: DPolicyError) -> Response:
    """Return the error as a page or as JSON; log errors of the server."""
    code, detail, _ = problem_from_error(error)
    status = PROBLEMS[code].status
    if status >= 500:
        _log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    if wants_json(request):
        return error_response(error)
    return render_page(request, "problem.html", None, status, problem=detail)
