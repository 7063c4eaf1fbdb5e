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
from dpolicy.service.pages import forms, reading
from dpolicy.service.pages.rendering import STATIC, page, wants_json
from dpolicy.service.principal import EVERY_ROLE, Role
from dpolicy.service.problem import PROBLEMS, error_response, problem_of

#: Who may look at the whole ledger, and at what a candidate would do: as in the API.
AUDIT = frozenset({Role.AUDITOR, Role.OFFICER})
PLAN = frozenset({Role.AUDITOR, Role.APPROVER, Role.OFFICER})
OFFICER = frozenset({Role.OFFICER})
ANSWER = frozenset({Role.APPROVER, Role.OFFICER})
NOBODY_NEEDED = frozenset[Role]()

_log = logging.getLogger("dpolicy")


class Page(NamedTuple):
    """One page: where, what shows it, how it is asked for, and by whom."""

    path: str
    show: Callable[..., Any]
    roles: frozenset[Role]
    method: str = "GET"


PAGES = (
    Page("/", reading.overview_, EVERY_ROLE),
    Page("/rule", reading.rule, EVERY_ROLE),
    Page("/rule.svg", reading.rule_drawing, EVERY_ROLE),
    Page("/releases", reading.releases, EVERY_ROLE),
    Page("/releases/{release:path}", reading.release, EVERY_ROLE),
    Page("/check", forms.check, EVERY_ROLE),
    Page("/check", forms.check, EVERY_ROLE, "POST"),
    Page("/policy", forms.policy, EVERY_ROLE),
    Page("/policy", forms.policy, PLAN, "POST"),
    Page("/policy/apply", forms.apply, OFFICER, "POST"),
    Page("/approvals", forms.approvals_, EVERY_ROLE),
    Page("/approvals/{proposal}", forms.answer, ANSWER, "POST"),
    Page("/rounds", forms.rounds, OFFICER),
    Page("/rounds", forms.rounds, OFFICER, "POST"),
    Page("/log", reading.log, AUDIT),
    Page("/login", reading.login, NOBODY_NEEDED),
)


def routes() -> list[Route | Mount]:
    """Every page."""
    found: list[Route | Mount] = [
        Route(one.path, _guarded(one), methods=[one.method]) for one in PAGES
    ]
    return [*found, Mount("/static", StaticFiles(directory=STATIC))]


def _guarded(one: Page) -> Callable[[Request], Any]:
    """A page for those who may see it; what goes wrong is told on a page, too."""

    async def serve(request: Request) -> Response:
        request.state.operation = "page"
        principal = request.state.principal
        if one.roles and (principal is None or not one.roles & principal.roles):
            needed = " or ".join(sorted(one.roles))
            return page(request, "problem.html", None, 403, why=f"this needs the role {needed}")
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
    code, detail, _ = problem_of(error)
    if PROBLEMS[code].status >= 500:
        _log.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    if wants_json(request):
        return error_response(error)
    return page(request, "problem.html", None, PROBLEMS[code].status, why=detail)
