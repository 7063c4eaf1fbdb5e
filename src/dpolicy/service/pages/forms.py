"""Pages with a form: try a release, a candidate policy, a round. Only `apply` writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.enforcement.decision_point import DecisionPoint
from dpolicy.errors import Conflicting, Misused, PolicyRejected, Refused, ReleaseRejected
from dpolicy.language.source import Source
from dpolicy.ledger.events import body_of
from dpolicy.releases.decision import Decision
from dpolicy.releases.request import Release
from dpolicy.service import policies, proposals
from dpolicy.service.endpoint import Call
from dpolicy.service.pages.reading import check_sight, only_own, page_number, point_of
from dpolicy.service.pages.rendering import has_role, page
from dpolicy.service.permission import in_own_name, needs_second_person
from dpolicy.service.principal import Role
from dpolicy.service.sight import decision_seen
from dpolicy.service.views.approvals import approvals
from dpolicy.service.views.asking import Asked, Round, asked, changed, round_of, written
from dpolicy.service.views.policy import candidate, policy_page
from dpolicy.service.views.releases import asker

#: Fields of a form; a name can come several times.
Fields = Mapping[str, list[str]]

#: A form has at most so many fields: the files of a policy and the conflicts to accept.
MOST_FIELDS = 5_000


async def check(request: Request) -> Response:
    """Try a release: what would be decided, and why. Nothing is charged."""
    fields = await _fields(request)
    return await run_in_threadpool(_check, request, fields)


def _check(request: Request, fields: Fields) -> Response:
    point = point_of(request)
    if request.method == "POST":
        return page(request, "check.html", asked(one(fields, "text"), partial(_decided, request)))
    return page(request, "check.html", Asked(_proposed(request, point)))


def _decided(request: Request, release: Release) -> Decision:
    """What would be decided, in the name of whoever asks and with the labels they may claim."""
    call = _call(request, None)
    own = in_own_name(call, release)
    needs_second_person(call, [own])
    return decision_seen(call.point, call.point.check(own), only_own(request))


def _proposed(request: Request, point: DecisionPoint) -> str:
    """A release of the past with a counter-offer taken, under a new name; or nothing."""
    name = request.query_params.get("release", "")
    if not name:
        return ""
    _, event = point.recorded(name)
    check_sight(request, asker(event))
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
    """Put a candidate in force, or let it wait for a second person."""
    fields = await _fields(request)
    return await run_in_threadpool(_apply, request, fields)


def _apply(request: Request, fields: Fields) -> Response:
    because = one(fields, "because").strip()
    if not because:
        return _policy(request, fields, "say why, for the record")
    sources = [Source(name, text) for name, text in _texts(fields)]
    said = {"sources": sources, "accept": fields.get("accept", []), "because": because}
    try:
        answer = policies.apply(_call(request, said))
    except PolicyRejected:
        return _policy(request, fields, "the text has mistakes")
    except Conflicting:
        return _policy(request, fields, "the past has already broken rules that are not accepted")
    except Misused as error:  # another policy came into force meanwhile
        return _policy(request, fields, str(error))
    if "proposal" in answer.value:
        return RedirectResponse(f"/approvals?waits={answer.value['proposal']}", 303)
    return RedirectResponse(f"/policy?applied={answer.value['sequence']}", 303)


def approvals_(request: Request, refused: str = "") -> Response:
    """What waits for a second person."""
    shown = approvals(point_of(request), page_number(request), only_own(request))
    said = request.query_params
    more: dict[str, Any] = {
        "refused": refused,
        "done": said.get("done"),
        "waits": said.get("waits"),
    }
    return page(request, "approvals.html", shown, **more)


async def answer(request: Request) -> Response:
    """Approve or reject what waits."""
    fields = await _fields(request)
    return await run_in_threadpool(_answer, request, fields)


def _answer(request: Request, fields: Fields) -> Response:
    call = _call(request, one(fields, "because").strip())
    agree = one(fields, "answer") == "approve"
    try:
        done = proposals.approve(call) if agree else proposals.reject(call)
    except (Misused, Conflicting, ReleaseRejected) as error:
        return approvals_(request, str(error))
    return RedirectResponse(f"/approvals?done={done.value['sequence']}", 303)


def _call(request: Request, body: Any) -> Call:
    """The same request as the API would see it, so that one set of rules says who may do what."""
    state, base = request.app.state, str(request.base_url).rstrip("/")
    access, principal, path = request.state.access, request.state.principal, request.path_params
    return Call(state.point, access, state.metrics, principal, base, path, {}, body)


async def _fields(request: Request) -> Fields:
    if request.method != "POST":
        return {}
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refused("too-large", f"a form has at most {MOST_FIELDS:,} fields") from None


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
