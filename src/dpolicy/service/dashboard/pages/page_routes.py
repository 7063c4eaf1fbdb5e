"""The pages → the routes that the application serves beside its API, each with who may see it.

`request.app.state.point` is the decision point, `request.app.state.access()` what may be done by
whom, `request.state.principal` the verified caller. Whoever is not logged in is sent to `/login`
before a page is asked for; paths below `/static/` and `/login` are open to everybody.
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

#: Who may look at the whole ledger, and at what a candidate would do: as in the API.
AUDIT = frozenset({Role.AUDITOR, Role.OFFICER})
PLAN = frozenset({Role.AUDITOR, Role.APPROVER, Role.OFFICER})
OFFICER = frozenset({Role.OFFICER})
ANSWER = frozenset({Role.APPROVER, Role.OFFICER})
PUBLIC_PAGE_ROLES = frozenset[Role]()

_log = logging.getLogger("dpolicy")


class PageRoute(NamedTuple):
    """One page: where, what shows it, how it is asked for, and by whom."""

    path: str
    show: Callable[..., Any]
    roles: frozenset[Role]
    method: str = "GET"


PAGES = (
    PageRoute("/", read_pages.overview_route, EVERY_ROLE),
    PageRoute("/rule", read_pages.rule_route, EVERY_ROLE),
    PageRoute("/rule.svg", read_pages.rule_diagram_route, EVERY_ROLE),
    PageRoute("/releases", read_pages.release_list_route, EVERY_ROLE),
    PageRoute("/releases/{release:path}", read_pages.release_route, EVERY_ROLE),
    PageRoute("/check", form_pages.check_page, EVERY_ROLE),
    PageRoute("/check", form_pages.check_page, EVERY_ROLE, "POST"),
    PageRoute("/policy", form_pages.policy_form_page, EVERY_ROLE),
    PageRoute("/policy", form_pages.policy_form_page, PLAN, "POST"),
    PageRoute("/policy/apply", form_pages.apply_form, OFFICER, "POST"),
    PageRoute("/approvals", form_pages.approvals_form_page, EVERY_ROLE),
    PageRoute("/approvals/{proposal}", form_pages.answer_form, ANSWER, "POST"),
    PageRoute("/rounds", form_pages.rounds_page, OFFICER),
    PageRoute("/rounds", form_pages.rounds_page, OFFICER, "POST"),
    PageRoute("/log", read_pages.log_route, AUDIT),
    PageRoute("/login", read_pages.login_form_route, PUBLIC_PAGE_ROLES),
)


def page_routes() -> list[Route | Mount]:
    """Every page."""
    found: list[Route | Mount] = [
        Route(one.path, _guarded(one), methods=[one.method]) for one in PAGES
    ]
    return [*found, Mount("/static", StaticFiles(directory=STATIC))]


def _guarded(one: PageRoute) -> Callable[[Request], Any]:
    """A page for those who may see it; what goes wrong is told on a page, too."""

    async def serve(request: Request) -> Response:
        request.state.operation = "page"
        principal = request.state.principal
        if one.roles and (principal is None or not one.roles & principal.roles):
            needed = " or ".join(sorted(one.roles))
            return render_page(
                request, "problem.html", None, 403, why=f"this needs the role {needed}"
            )
        try:
            if inspect.iscoroutinefunction(one.show):
                response = await one.show(request)
            else:
                response = await run_in_threadpool(one.show, request)
        except DPolicyError as error:
            return _told(request, error)
        assert isinstance(response, Response)
        return response

    return serve


def _told(request: Request, error: DPolicyError) -> Response:
    code, detail, _ = problem_from_error(error)
    if PROBLEMS[code].status >= 500:
        _log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    if wants_json(request):
        return error_response(error)
    return render_page(request, "problem.html", None, PROBLEMS[code].status, why=detail)
