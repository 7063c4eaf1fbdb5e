"""Handlers of the pages with a form: try a release, rounds, the policy editor, approvals.

Only `handle_apply_form` and `handle_answer_form` write to the ledger.
"""

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
from dpolicy.service.dashboard.views.approvals_page import build_approvals_page
from dpolicy.service.dashboard.views.dry_run import (
    ReleaseDryRun,
    RoundDryRun,
    apply_counter_offer,
    dry_run_release,
    dry_run_round,
    release_to_yaml,
)
from dpolicy.service.dashboard.views.policy_page import build_policy_page, preview_policy
from dpolicy.service.dashboard.views.release_pages import release_author
from dpolicy.service.http.endpoint import build_api_request
from dpolicy.text.yaml_reader import Source

#: Form fields by name; a name can have several values.
FormFields = Mapping[str, list[str]]

#: Largest number of fields of a form: the files of a policy and the conflicts to accept.
MAX_FORM_FIELDS = 5_000


async def handle_check(request: Request) -> Response:
    """Show the form for a dry run of a release; on POST, also its decision and reasons."""
    fields = await _read_fields(request)
    return await run_in_threadpool(_respond_to_check, request, fields)


def _respond_to_check(request: Request, fields: FormFields) -> Response:
    if request.method == "POST":
        text = single_field(fields, "text")
        page = dry_run_release(text, partial(_check_release, request))
    else:
        page = ReleaseDryRun(_counter_offer_text(request))
    return render_page(request, "check.html", page)


def _check_release(request: Request, release: Release) -> Decision:
    """Evaluate a release with the caller as its author.

    Raise `RequestRefused` if the caller may not claim its labels.
    """
    call = build_api_request(request, None)
    authored = with_caller_as_author(call, release)
    requires_approval(call, [authored])
    decision = call.decision_point.check(authored)
    return redact_decision(call.decision_point, decision, visible_owner(request))


def _counter_offer_text(request: Request) -> str:
    """Return the release that the query names as YAML, changed by a counter-offer, with a new id.

    Return an empty text if the query names no release.
    """
    name = request.query_params.get("release", "")
    if not name:
        return ""
    _, event = decision_point_for(request).find_release(name)
    ensure_visible(request, release_author(event))
    body = apply_counter_offer(release_body_in(event), dict(request.query_params))
    return release_to_yaml({**body, "release": f"{name}-again"})


async def handle_rounds(request: Request) -> Response:
    """Show the form for a dry run of an allocation round; on POST, also its result."""
    fields = await _read_fields(request)
    return await run_in_threadpool(_respond_to_rounds, request, fields)


def _respond_to_rounds(request: Request, fields: FormFields) -> Response:
    example = _example_text(request, "round")
    strategy = single_field(fields, "strategy") or "efficient"
    if request.method == "POST":
        text = single_field(fields, "text")
        page = dry_run_round(decision_point_for(request), text, strategy)
    else:
        text = example if example and "example" in request.query_params else ""
        page = RoundDryRun(text, strategy)
    return render_page(request, "rounds.html", page, strategies=tuple(STRATEGIES), example=example)


async def handle_policy(request: Request) -> Response:
    """Show the active policy and its editor; on POST, also the preview of a candidate."""
    fields = await _read_fields(request)
    return await run_in_threadpool(_respond_to_policy, request, fields)


def _respond_to_policy(request: Request, fields: FormFields, rejection: str = "") -> Response:
    decision_point = decision_point_for(request)
    active = decision_point.policy
    page = build_policy_page(active) if active else None
    texts = _policy_texts(fields)
    if not texts and page:
        texts = [(file.name, file.text) for file in page.files]
    candidate = preview_policy(decision_point, texts) if request.method == "POST" else None
    example = _example_text(request, "candidate")
    if "example" in request.query_params and example and len(texts) == 1:
        texts = [(texts[0][0], example)]
    return render_page(
        request,
        "policy.html",
        candidate or page,
        policy=page,
        candidate=candidate,
        texts=texts or [("policy.yaml", "")],
        example=example,
        rejection=rejection,
        applied=request.query_params.get("applied"),
        may_apply=has_role(request, Role.OFFICER),
    )


async def handle_apply_form(request: Request) -> Response:
    """Activate a candidate policy, or propose it if it needs a second approver."""
    fields = await _read_fields(request)
    return await run_in_threadpool(_respond_to_apply, request, fields)


def _respond_to_apply(request: Request, fields: FormFields) -> Response:
    because = single_field(fields, "because").strip()
    if not because:
        return _respond_to_policy(request, fields, "a reason is required")
    sources = [Source(name, text) for name, text in _policy_texts(fields)]
    body = {"sources": sources, "accept": fields.get("accept", []), "because": because}
    try:
        response = policies.handle_apply(build_api_request(request, body))
    except PolicyRejected:
        return _respond_to_policy(request, fields, "the text has errors")
    except PolicyConflicts:
        rejection = "it has conflicts with recorded releases that are not accepted"
        return _respond_to_policy(request, fields, rejection)
    except OperationRejected as error:  # such as: the active policy changed during the request
        return _respond_to_policy(request, fields, str(error))
    if "proposal" in response.value:
        return RedirectResponse(f"/approvals?proposed={response.value['proposal']}", 303)
    return RedirectResponse(f"/policy?applied={response.value['sequence']}", 303)


def handle_approvals(request: Request, rejection: str = "") -> Response:
    """Show the proposals that need a second approver."""
    page = build_approvals_page(
        decision_point_for(request), page_number(request), visible_owner(request)
    )
    query = request.query_params
    return render_page(
        request,
        "approvals.html",
        page,
        rejection=rejection,
        answered=query.get("answered"),
        proposed=query.get("proposed"),
    )


async def handle_answer_form(request: Request) -> Response:
    """Approve or reject a proposal."""
    fields = await _read_fields(request)
    return await run_in_threadpool(_respond_to_answer, request, fields)


def _respond_to_answer(request: Request, fields: FormFields) -> Response:
    call = build_api_request(request, single_field(fields, "because").strip())
    approve = single_field(fields, "answer") == "approve"
    try:
        response = proposals.handle_approve(call) if approve else proposals.handle_reject(call)
    except (OperationRejected, PolicyConflicts, ReleaseRejected) as error:
        return handle_approvals(request, str(error))
    return RedirectResponse(f"/approvals?answered={response.value['sequence']}", 303)


async def _read_fields(request: Request) -> FormFields:
    """Read the fields of a POST request. Raise `RequestRefused` if there are too many."""
    if request.method != "POST":
        return {}
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        message = f"the form has more than {MAX_FORM_FIELDS:,} fields"
        raise RequestRefused("too-large", message) from None


def single_field(fields: FormFields, name: str) -> str:
    """Return the first value of a field, with LF line ends; browsers send CR LF."""
    return fields.get(name, [""])[0].replace("\r\n", "\n")


def _policy_texts(fields: FormFields) -> list[tuple[str, str]]:
    """Return the policy files of a form as pairs of name and text."""
    texts = [text.replace("\r\n", "\n") for text in fields.get("text", [])]
    return list(zip(fields.get("file", []), texts, strict=False))


def _example_text(request: Request, name: str) -> str | None:
    """Return an example text of the application; only the demo has examples."""
    examples: Mapping[str, Any] = getattr(request.app.state, "examples", {})
    return examples.get(name)
