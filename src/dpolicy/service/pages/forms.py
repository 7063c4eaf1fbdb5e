"""Pages with a form: try a release, a candidate policy, a round. Only `apply` writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.errors import Conflicting, Misused, PolicyRejected, ReleaseRejected
from dpolicy.language.source import Source
from dpolicy.ledger.events import body_of
from dpolicy.rules.compiler import compile_policy
from dpolicy.service.pages.reading import point_of
from dpolicy.service.pages.rendering import has_role, page
from dpolicy.service.principal import Role
from dpolicy.service.views.approvals import approvals
from dpolicy.service.views.asking import Asked, Round, asked, changed, round_of, written
from dpolicy.service.views.policy import candidate, policy_page

#: Fields of a form; a name can come several times.
Fields = Mapping[str, list[str]]

#: A form has at most so many fields: the files of a policy and the conflicts to accept.
MOST_FIELDS = 5_000

#: Who may answer what waits.
ANSWERS = {
    "release": frozenset({Role.APPROVER}),
    "void": frozenset({Role.APPROVER, Role.OFFICER}),
    "policy": frozenset({Role.OFFICER}),
}


async def check(request: Request) -> Response:
    """Try a release: what would be decided, and why. Nothing is charged."""
    fields = await _fields(request)
    return await run_in_threadpool(_check, request, fields)


def _check(request: Request, fields: Fields) -> Response:
    point = point_of(request)
    if request.method == "POST":
        return page(request, "check.html", asked(point, one(fields, "text")))
    return page(request, "check.html", Asked(_proposed(request, point)))


def _proposed(request: Request, point: DecisionPoint) -> str:
    """A release of the past with a counter-offer taken, under a new name; or nothing."""
    name = request.query_params.get("release", "")
    if not name:
        return ""
    _, event = point.recorded(name)
    body = changed(body_of(event), dict(request.query_params))
    return written({**body, "release": f"{name}-again"})


async def rounds(request: Request) -> Response:
    """A round of releases that compete: who would win. Nothing is charged."""
    fields = await _fields(request)
    return await run_in_threadpool(_rounds, request, fields)


def _rounds(request: Request, fields: Fields) -> Response:
    more: dict[str, Any] = {"strategies": tuple(STRATEGIES), "example": _example(request, "round")}
    strategy = one(fields, "strategy") or "efficient"
    if request.method == "POST":
        found = round_of(point_of(request), one(fields, "text"), strategy)
        return page(request, "rounds.html", found, **more)
    text = more["example"] if "example" in request.query_params else ""
    return page(request, "rounds.html", Round(text or "", strategy), **more)


async def policy(request: Request) -> Response:
    """The policy in force, and what a candidate for it would do."""
    fields = await _fields(request)
    return await run_in_threadpool(_policy, request, fields)


def _policy(request: Request, fields: Fields, refused: str = "") -> Response:
    point = point_of(request)
    in_force = point.policy
    shown = policy_page(in_force) if in_force else None
    texts = _texts(fields) or [(t.name, t.text) for t in shown.texts] if shown else _texts(fields)
    found = candidate(point, texts) if request.method == "POST" else None
    example = _example(request, "candidate")
    if "example" in request.query_params and example and len(texts) == 1:
        texts = [(texts[0][0], example)]
    return page(
        request,
        "policy.html",
        found or shown,
        policy=shown,
        candidate=found,
        texts=texts or [("policy.yaml", "")],
        example=example,
        refused=refused,
        applied=request.query_params.get("applied"),
        may_apply=has_role(request, Role.OFFICER),
    )


async def apply(request: Request) -> Response:
    """Put a candidate in force."""
    fields = await _fields(request)
    return await run_in_threadpool(_apply, request, fields)


def _apply(request: Request, fields: Fields) -> Response:
    because = one(fields, "because").strip()
    if not because:
        return _policy(request, fields, "say why, for the record")
    try:
        compiled = compile_policy([Source(name, text) for name, text in _texts(fields)])
        accepted = tuple(fields.get("accept", ()))
        by = request.state.principal.name
        sequence = point_of(request).apply(compiled, accepted, by, because)
    except PolicyRejected:
        return _policy(request, fields, "the text has mistakes")
    except Conflicting:
        return _policy(request, fields, "the past has already broken rules that are not accepted")
    return RedirectResponse(f"/policy?applied={sequence}", 303)


def approvals_(request: Request, refused: str = "") -> Response:
    """What waits for a second person."""
    roles = request.state.principal.roles

    def may_answer(kind: str) -> bool:
        return bool(ANSWERS[kind] & roles)

    shown = approvals(point_of(request))
    done = request.query_params.get("done")
    return page(request, "approvals.html", shown, refused=refused, done=done, may_answer=may_answer)


async def answer(request: Request) -> Response:
    """Approve or reject what waits."""
    fields = await _fields(request)
    return await run_in_threadpool(_answer, request, fields)


def _answer(request: Request, fields: Fields) -> Response:
    point, number = point_of(request), int(request.path_params["number"])
    by, because = request.state.principal, one(fields, "because").strip()
    proposal = point.proposals.get(number)
    if proposal is None or not ANSWERS[proposal.kind] & by.roles:
        return page(request, "missing.html", None, 403, why="this is not for you to answer")
    try:
        if one(fields, "answer") == "approve":
            point.approve(number, by.name, because)
        else:
            point.reject(number, by.name, because)
    except (Misused, Conflicting, ReleaseRejected) as error:
        return approvals_(request, str(error))
    return RedirectResponse(f"/approvals?done={point.position.sequence}", 303)


async def _fields(request: Request) -> Fields:
    if request.method != "POST":
        return {}
    text = (await request.body()).decode("utf-8", "replace")
    return parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)


def one(fields: Fields, name: str) -> str:
    """A field that comes once; browsers end lines in two characters."""
    return fields.get(name, [""])[0].replace("\r\n", "\n")


def _texts(fields: Fields) -> list[tuple[str, str]]:
    """The files of a policy that a form holds."""
    texts = [text.replace("\r\n", "\n") for text in fields.get("text", [])]
    return list(zip(fields.get("file", []), texts, strict=False))


def _example(request: Request, name: str) -> str | None:
    """A text to begin with, where there is one: the demo has some."""
    examples: Mapping[str, Any] = getattr(request.app.state, "examples", {})
    return examples.get(name)
