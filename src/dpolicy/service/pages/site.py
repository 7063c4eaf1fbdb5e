"""The pages → the routes that the application serves beside its API.

`request.app.state.point` is the decision point, `request.app.state.access()` what may be done by
whom, `request.state.principal` the verified caller. Whoever is not logged in is sent to `/login`
before a page is asked for; paths below `/static/` and `/login` are open to everybody.
"""

from __future__ import annotations

from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dpolicy.service.pages import forms, reading
from dpolicy.service.pages.rendering import STATIC


def routes() -> list[Route | Mount]:
    """Every page."""
    return [
        Route("/", reading.overview_, methods=["GET"]),
        Route("/rule", reading.rule, methods=["GET"]),
        Route("/rule.svg", reading.rule_drawing, methods=["GET"]),
        Route("/releases", reading.releases, methods=["GET"]),
        Route("/releases/{release:path}", reading.release, methods=["GET"]),
        Route("/log", reading.log, methods=["GET"]),
        Route("/login", reading.login, methods=["GET"]),
        Route("/check", forms.check, methods=["GET", "POST"]),
        Route("/policy", forms.policy, methods=["GET", "POST"]),
        Route("/policy/apply", forms.apply, methods=["POST"]),
        Route("/approvals", forms.approvals_, methods=["GET"]),
        Route("/approvals/{number:int}", forms.answer, methods=["POST"]),
        Route("/rounds", forms.rounds, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
