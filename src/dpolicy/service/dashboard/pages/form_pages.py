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
from dpolicy.errors import (
    OperationRejected,
    PolicyConflicts,
    PolicyRejected,
    ReleaseRejected,
    RequestRefused,
)
from dpolicy.ledger.events import release_body_in
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.api import policies, proposals
from dpolicy.service.auth.authorization import requires_approval, with_caller_as_author
from dpolicy.service.auth.principal import Role
from dpolicy.service.auth.redaction import redact_decision
from dpolicy.service.dashboard.pages.read_pages import (
    decision_point_for,
    ensure_visible,
    page_number,
    visible_owner,
)
from dpolicy.service.dashboard.pages.rendering import has_role, render_page
from dpolicy.service.dashboard.views.approvals_page import approvals_page
from dpolicy.service.dashboard.views.dry_run import (
    ReleaseDryRun,
    RoundDryRun,
    apply_counter_offer,
    dry_run_release,
    dry_run_round,
    release_to_yaml,
)
from dpolicy.service.dashboard.views.policy_page import policy_page, preview_policy
from dpolicy.service.dashboard.views.release_pages import release_author
from dpolicy.service.http.endpoint import build_api_request
from dpolicy.text.yaml_reader import Source

#: Fields of a form; a name can come several times.
FormFields = Mapping[str, list[str]]

#: A form has at most so many fields: the files of a policy and the conflicts to accept.
MAX_FORM_FIELDS = 5_000


async def check_page(request: Request) -> Response:
    """Try a release: what would be decided, and why. Nothing is charged."""
    fields = await _fields(request)
    return await run_in_threadpool(_check, request, fields)


def _check(request: Request, fields: FormFields) -> Response:
    point = decision_point_for(request)
    if request.method == "POST":
        return render_page(
            request,
            "check.html",
            dry_run_release(single_field(fields, "text"), partial(_decided, request)),
        )
    return render_page(request, "check.html", ReleaseDryRun(_proposed(request, point)))


def _decided(request: Request, release: Release) -> Decision:
    """What would be decided, in the name of whoever asks and with the labels they may claim."""
    call = build_api_request(request, None)
    own = with_caller_as_author(call, release)
    requires_approval(call, [own])
    return redact_decision(
        call.decision_point, call.decision_point.check(own), visible_owner(request)
    )


def _proposed(request: Request, point: DecisionPoint) -> str:
    """A release of the past with a counter-offer taken, under a new name; or nothing."""
    name = request.query_params.get("release", "")
    if not name:
        return ""
    _, event = point.find_release(name)
    ensure_visible(request, release_author(event))
    body = apply_counter_offer(release_body_in(event), dict(request.query_params))
    return release_to_yaml({**body, "release": f"{name}-again"})


async def rounds_page(request: Request) -> Response:
    """A round of releases that compete: who would win. Nothing is charged."""
    fields = await _fields(request)
    return await run_in_threadpool(_rounds, request, fields)


def _rounds(request: Request, fields: FormFields) -> Response:
    more: dict[str, Any] = {"strategies": tuple(STRATEGIES), "example": _example(request, "round")}
    strategy = single_field(fields, "strategy") or "efficient"
    if request.method == "POST":
        found = dry_run_round(decision_point_for(request), single_field(fields, "text"), strategy)
        return render_page(request, "rounds.html", found, **more)
    text = more["example"] if "example" in request.query_params else ""
    return render_page(request, "rounds.html", RoundDryRun(text or "", strategy), **more)


async def policy_form_page(request: Request) -> Response:
    """The policy in force, and what a candidate for it would do."""
    fields = await _fields(request)
    return await run_in_threadpool(_policy, request, fields)


def _policy(request: Request, fields: FormFields, refused: str = "") -> Response:
    point = decision_point_for(request)
    in_force = point.policy
    shown = policy_page(in_force) if in_force else None
    texts = _texts(fields) or [(t.name, t.text) for t in shown.texts] if shown else _texts(fields)
    found = preview_policy(point, texts) if request.method == "POST" else None
    example = _example(request, "candidate")
    if "example" in request.query_params and example and len(texts) == 1:
        texts = [(texts[0][0], example)]
    return render_page(
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


async def apply_form(request: Request) -> Response:
    """Put a candidate in force, or let it wait for a second person."""
    fields = await _fields(request)
    return await run_in_threadpool(_apply, request, fields)


def _apply(request: Request, fields: FormFields) -> Response:
    because = single_field(fields, "because").strip()
    if not because:
        return _policy(request, fields, "say why, for the record")
    sources = [Source(name, text) for name, text in _texts(fields)]
    said = {"sources": sources, "accept": fields.get("accept", []), "because": because}
    try:
        answer = policies.handle_apply(build_api_request(request, said))
    except PolicyRejected:
        return _policy(request, fields, "the text has mistakes")
    except PolicyConflicts:
        return _policy(request, fields, "the past has already broken rules that are not accepted")
    except OperationRejected as error:  # another policy came into force meanwhile
        return _policy(request, fields, str(error))
    if "proposal" in answer.value:
        return RedirectResponse(f"/approvals?waits={answer.value['proposal']}", 303)
    return RedirectResponse(f"/policy?applied={answer.value['sequence']}", 303)


def approvals_form_page(request: Request, refused: str = "") -> Response:
    """What waits for a second person."""
    shown = approvals_page(
        decision_point_for(request), page_number(request), visible_owner(request)
    )
    said = request.query_params
    more: dict[str, Any] = {
        "refused": refused,
        "done": said.get("done"),
        "waits": said.get("waits"),
    }
    return render_page(request, "approvals.html", shown, **more)


async def answer_form(request: Request) -> Response:
    """Approve or reject what waits."""
    fields = await _fields(request)
    return await run_in_threadpool(_answer, request, fields)


def _answer(request: Request, fields: FormFields) -> Response:
    call = build_api_request(request, single_field(fields, "because").strip())
    agree = single_field(fields, "answer") == "approve"
    try:
        done = proposals.handle_approve(call) if agree else proposals.handle_reject(call)
    except (OperationRejected, PolicyConflicts, ReleaseRejected) as error:
        return approvals_form_page(request, str(error))
    return RedirectResponse(f"/approvals?done={done.value['sequence']}", 303)


async def _fields(request: Request) -> FormFields:
    if request.method != "POST":
        return {}
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise RequestRefused(
            "too-large", f"a form has at most {MAX_FORM_FIELDS:,} fields"
        ) from None


def single_field(fields: FormFields, name: str) -> str:
    """A field that comes once; browsers end lines in two characters."""
    return fields.get(name, [""])[0].replace("\r\n", "\n")


def _texts(fields: FormFields) -> list[tuple[str, str]]:
    """The files of a policy that a form holds."""
    texts = [text.replace("\r\n", "\n") for text in fields.get("text", [])]
    return list(zip(fields.get("file", []), texts, strict=False))


def _example(request: Request, name: str) -> str | None:
    """A text to begin with, where there is one: the demo has some."""
    examples: Mapping[str, Any] = getattr(request.app.state, "examples", {})
    return examples.get(name)
