"""Quick route of `POST /v1/releases` for small bodies, in front of the application.

It admits, parses and authorizes on the event loop and waits for the submission queue. Reservations,
approvals, denials, repeated ids and errors of the authorization run in a thread, with the code of
the application. A request without a small JSON body for this path goes to the application
unchanged. Both give the same responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVarTuple

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dpolicy.errors import DPolicyError
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import Result
from dpolicy.pdp.many_releases.batch_commands import Submission
from dpolicy.pdp.plans.decision_plan import DecisionPlan
from dpolicy.pdp.plans.planned_requests import PlannedRequest
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.api import releases
from dpolicy.service.auth.access_rules import AccessRules
from dpolicy.service.auth.authorization import (
    Authorization,
    author_name,
    authorize_under,
    depends_on_policy,
    with_caller_as_author,
)
from dpolicy.service.auth.principal import Principal
from dpolicy.service.auth.redaction import redact_response
from dpolicy.service.hot_route.known_bodies import KnownBodies, SplitBody, split_body
from dpolicy.service.hot_route.submission_queue import Outcome, SubmissionQueue
from dpolicy.service.http.admission import Admission, read_headers, too_slow_error
from dpolicy.service.http.endpoint import ApiRequest, ApiResponse, Endpoint, ensure_role
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.metrics import Metrics
from dpolicy.service.http.middleware import POSITION, SECURITY_HEADERS
from dpolicy.service.http.problem_details import (
    error_response,
    log_error,
    unexpected_error_response,
)
from dpolicy.service.http.request_body import media_type, parse_body

#: Largest body that the event loop parses; a larger one would delay other requests.
MAX_QUICK_BYTES = 16_384

#: Largest number of mechanisms that the event loop plans; more of them are planned in a thread.
MAX_QUICK_MECHANISMS = 16

#: The endpoint that this route serves.
ENDPOINT: Endpoint = next(e for e in releases.ENDPOINTS if e.handler is releases.handle_submit)

Arguments = TypeVarTuple("Arguments")

_ANY_AUTHORIZATION = Authorization(False, ANY_POLICY)
_MAX_LENGTH_DIGITS = len(str(MAX_QUICK_BYTES))
_POSITION_NAME = POSITION.lower().encode()
_FIXED_HEADERS = [(k.lower().encode(), v.encode()) for k, v in SECURITY_HEADERS.items()]
_JSON_TYPE = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client closed the connection before the end of its request."""


@dataclass(frozen=True, slots=True, eq=False)
class _Caller:
    """Access rules and principal of a request."""

    access: AccessRules
    principal: Principal

    def is_same(self, other: _Caller) -> bool:
        """Return whether the caller is the same under the same version of the access rules."""
        return self.access is other.access and self.principal is other.principal


@dataclass(frozen=True, slots=True)
class _KnownContent:
    """Caller who was allowed a content without approval, its plan, and the policy of both."""

    caller: _Caller
    plan: DecisionPlan
    by: str
    expected_policy: ExpectedPolicy


class SubmitRoute:
    """ASGI application that serves small submissions and passes other requests on."""

    def __init__(self, app: Starlette, limits: ServiceLimits) -> None:
        self._app, self._limits = app, limits
        self._point: DecisionPoint = app.state.point
        self._admission: Admission = app.state.admission
        self._metrics: Metrics = app.state.metrics
        self._threads: CapacityLimiter = app.state.threads
        self._queue = SubmissionQueue(self._point.decide_many)
        self._known = KnownBodies[_KnownContent](self._is_current)

    def close(self) -> None:
        """Decide what waits, and end the thread of the queue."""
        self._queue.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != ENDPOINT.path:
            await self._app(scope, receive, send)
            return
        headers = read_headers(scope)
        if _is_quick(scope, headers):
            await self._serve(scope, headers, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        """Admit a submission, answer it and count it, as the middleware does."""
        started, status, operation = monotonic(), 500, "page"
        try:
            try:
                access, principal = await self._admission.admit(scope, headers)
                operation = ENDPOINT.name
                ensure_role(ENDPOINT, principal)
                assert principal is not None
                data = await self._read_body(receive)
                status, body = await self._respond(_Caller(access, principal), data)
                await self._send(status, _json_headers(body), body, send)
            except DPolicyError as error:
                log_error(scope["method"], scope["path"], error)
                refusal = error_response(error)
                status = refusal.status_code
                await self._send(status, refusal.raw_headers, bytes(refusal.body), send)
            except ClientGone:
                return
            except Exception:
                failure: Response = unexpected_error_response()
                await self._send(500, failure.raw_headers, bytes(failure.body), send)
                raise
        finally:
            self._metrics.request(operation, status, monotonic() - started)

    async def _read_body(self, receive: Receive) -> bytes:
        """Return the body. Raise `RequestRefused` if it does not arrive in time."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise too_slow_error(self._limits) from None

    async def _respond(self, caller: _Caller, data: bytes) -> tuple[int, bytes]:
        """Return status and body of the response to a submission."""
        parts = split_body(data)
        content = None if parts is None else self._known.find(caller.principal.name, parts)
        if parts is not None and content is not None and content.caller.is_same(caller):
            request = PlannedRequest(parts.id, content.plan, None)
            submission = Submission(request, content.by, content.expected_policy)
            outcome = await self._queue.submit(submission)
            if not releases.is_policy_changed(outcome):
                return await self._finish(caller, submission, outcome)
        return await self._parse_and_respond(caller, data, parts)

    async def _parse_and_respond(
        self, caller: _Caller, data: bytes, parts: SplitBody | None
    ) -> tuple[int, bytes]:
        """Parse a submission, and decide it under the policy that determined that it needs no
        approval.
        """
        submitted, mode = parse_body(data, releases.SUBMISSION, self._limits)
        call = self._api_request(caller, (submitted, mode))
        release, by = with_caller_as_author(call, submitted), author_name(call)
        for _ in range(releases.MAX_DECISION_ATTEMPTS):
            authorization = self._authorize(call, release)
            if mode == "reserve" or authorization is None or authorization.needs_approval:
                return self._encode(await self._in_thread(_handle_slowly, call))
            request = await self._plan(release, by)
            submission = Submission(request, by, authorization.expected_policy)
            outcome = await self._queue.submit(submission)
            if not releases.is_policy_changed(outcome):
                if isinstance(outcome, str) and parts is not None and parts.id == release.id:
                    self._keep(caller, parts, submission)
                return await self._finish(caller, submission, outcome)
        raise releases.policy_keeps_changing_error()

    async def _plan(self, release: Release, by: str) -> PlannedRequest:
        if len(release.mechanisms) <= MAX_QUICK_MECHANISMS:
            return self._point.plan_request(release, by)
        return await self._in_thread(self._point.plan_request, release, by)

    def _keep(self, caller: _Caller, parts: SplitBody, submission: Submission) -> None:
        """Keep the plan of an allowed content, for its next request."""
        plan = submission.request.plan
        if plan is not None:
            content = _KnownContent(caller, plan, submission.by, submission.expected_policy)
            self._known.keep(caller.principal.name, parts, content)

    def _is_current(self, content: _KnownContent) -> bool:
        published = self._point.published_state
        return content.plan.is_for(published.enforced, published.today)

    def _api_request(self, caller: _Caller, body: Any) -> ApiRequest:
        return ApiRequest(
            self._point, caller.access, self._metrics, caller.principal, "", {}, {}, body
        )

    def _authorize(self, call: ApiRequest, release: Release) -> Authorization | None:
        """Authorize a release under the published policy; return None if that fails.

        The published policy may be old, so the error counts only under the newest policy.
        """
        if not depends_on_policy(call.access):
            return _ANY_AUTHORIZATION
        try:
            return authorize_under(call, [release], self._point.published_state.enforced)
        except DPolicyError:
            return None

    async def _finish(
        self, caller: _Caller, submission: Submission, outcome: Outcome
    ) -> tuple[int, bytes]:
        """Return the response for an outcome. A denial gets advice, in a thread."""
        if isinstance(outcome, str):
            self._metrics.decision("allow")
            head = self._point.head
            position = f'{{"head": "{head.digest.hex()}", "sequence": {head.sequence}}}'
            return 200, f'{outcome[:-1]}, "position": {position}}}'.encode()
        if isinstance(outcome, DPolicyError):
            raise outcome
        call = self._api_request(caller, None)
        response = await self._in_thread(_finish_slowly, call, submission, outcome)
        return self._encode(response)

    def _encode(self, response: ApiResponse) -> tuple[int, bytes]:
        head = self._point.head
        position = {"sequence": head.sequence, "head": head.digest.hex()}
        value = {**response.value, "position": position}
        return response.status, encode_canonical(value)

    async def _in_thread(
        self, work: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        return await to_thread.run_sync(work, *arguments, limiter=self._threads)

    async def _send(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send
    ) -> None:
        """Send a response with the headers that the middleware adds."""
        head = self._point.head
        position = (_POSITION_NAME, f"{head.sequence}:{head.digest.hex()}".encode())
        all_headers = [*headers, position, *_FIXED_HEADERS]
        await send({"type": "http.response.start", "status": status, "headers": all_headers})
        await send({"type": "http.response.body", "body": body})


def _json_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % len(body)), _JSON_TYPE]


def _is_quick(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Return whether a request for the path of the route has a small JSON body and no query."""
    length = headers.get("content-length", "")
    if scope["method"] != ENDPOINT.method or scope["query_string"]:
        return False
    if not (length.isascii() and length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS):
        return False
    return int(length) <= MAX_QUICK_BYTES and media_type(headers) == "application/json"


def _handle_slowly(call: ApiRequest) -> ApiResponse:
    """Answer a submission as the application does."""
    return redact_response(call, releases.handle_submit(call))


def _finish_slowly(call: ApiRequest, submission: Submission, decision: Decision) -> ApiResponse:
    """Return the response for a decision that needs advice, its record, or redaction."""
    advised = call.decision_point.add_advice(submission.request.read_release(), decision)
    releases.check_mode(call, advised, reserve=False)
    releases.count_outcome(call, advised)
    return redact_response(call, ApiResponse(advised.as_json()))
