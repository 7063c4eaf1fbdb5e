"""`Client` and `AsyncClient`: what `DecisionPoint` can be asked, asked of a service.

A request that got no answer is sent again, with the same id, so that it counts once: the service
gives back what it recorded. Who asks is known by the token; `by` is there for the sake of the same
calls, and a service refuses a release in somebody else's name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from dpolicy.client import wire
from dpolicy.client.wire import ApiCall, RemoteRuleStatus, parse_response
from dpolicy.errors import DPolicyError, LedgerUnavailable, OperationRejected
from dpolicy.ledger.chain import GENESIS, Record
from dpolicy.ledger.chain_reader import Head, advance_head
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

T = TypeVar("T")

#: Seconds to wait before asking again, and so how often.
RETRY_DELAYS = (0.1, 0.3, 1.0, 3.0)
#: Seconds for one attempt; a decision waits for the ledger, and that for at most thirty.
TIMEOUT = 60.0
#: Rules whose budgets are told.
MAX_RULES_PER_CALL = 100_000
#: Records in one request.
RECORDS_PER_PAGE = 1_000

#: Nothing was done, or nobody knows: to ask again with the same id does no harm.
_AGAIN = frozenset({429, 502, 503, 504})
_POSITION = "dpolicy-position"


class _Attempts:
    """The attempts at one request: what came of the last one, and whether to go on."""

    def __init__(self, ask: ApiCall[Any]) -> None:
        self._ask = ask
        self.lost = False
        self.answer: httpx.Response | None = None

    def record_failure(self, error: httpx.TransportError) -> None:
        """No answer came; the service may have done it all the same."""
        self.answer, self.lost = None, True
        self._why = str(error) or type(error).__name__

    @property
    def is_finished(self) -> bool:
        """Whether there is an answer worth having."""
        return self.answer is not None and self.answer.status_code not in _AGAIN

    def result(self) -> Any:
        """The value of the last answer. Raises what it tells, or that there was none."""
        if self.answer is None:
            raise LedgerUnavailable(
                f"the service does not answer: {self._why}; the outcome is not known\n"
                "help: ask again with the same id"
            )
        return parse_response(self._ask, self.answer.status_code, self.answer.content)

    def may_have_succeeded(self, error: DPolicyError) -> bool:
        """Whether an error may only say that a lost attempt had got through."""
        ended = self._ask.ended is not None and self.lost
        return ended and isinstance(error, OperationRejected) and error.code == "not-reserved"


class _Session:
    """What both kinds of client know."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self.position = Head()

    def _request(self, ask: ApiCall[Any]) -> dict[str, Any]:
        headers = {} if ask.body is None else {"content-type": "application/json"}
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "params": list(ask.query),
            "content": ask.body,
            "headers": headers,
        }

    def _note(self, answer: httpx.Response) -> httpx.Response:
        sequence, _, head = answer.headers.get(_POSITION, "").partition(":")
        if sequence.isdigit() and int(sequence) >= self.position.sequence:
            self.position = Head(int(sequence), bytes.fromhex(head))
        return answer


class Client(_Session):
    """A decision point somewhere else. Safe to share between threads."""

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        super().__init__(url, token)
        self._http = httpx.Client(headers=self._headers, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it. Raises `Waiting` if a second person has to agree."""
        return self._send(wire.submit_call(release, by, reserve=False))

    def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and hold its cost until it is committed or voided."""
        return self._send(wire.submit_call(release, by, reserve=True))

    def check(self, release: Release | Body) -> Decision:
        """What `submit` would answer now; nothing is written."""
        return self._send(wire.check_call(release))

    def commit(self, release: str, used: Release | Body | None = None, by: str = "") -> int:
        """End a reservation that was used, wholly or in part; the number of its event."""
        return self._send(wire.commit_call(release, used))

    def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation of which nothing was computed. Raises `Waiting` if two must agree."""
        return self._send(wire.void_call(release, because))

    def release(self, release: str) -> dict[str, Any]:
        """How a release stands, what was asked, and what was decided."""
        return self._send(wire.show_call(release))

    def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] = (),
        by: str = "",
        because: str = "",
    ) -> int:
        """Put a policy in force. Raises `Conflicting`, or `Waiting` if two must agree."""
        return self._send(wire.apply_call(policy, accept, because))

    def plan(self, policy: CompiledPolicy | str | Path, *, replay: bool = True) -> dict[str, Any]:
        """What a candidate would change; nothing is written."""
        return self._send(wire.plan_call(policy, replay=replay))

    def import_past(self, release: Release | Body, because: str = "", by: str = "") -> int:
        """Charge a release that has already happened, whatever the budgets say."""
        return self._send(wire.import_call(release, because))

    def allocate(
        self,
        releases: Sequence[Release | Body],
        strategy: str = "efficient",
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Choose among releases and charge the winners together."""
        return self._send(wire.allocate_call(releases, strategy, dry_run=dry_run))

    def budgets(self, at: Mapping[str, str] | None = None) -> list[RemoteRuleStatus]:
        """What was spent of each budget, the fullest first."""
        return self._send(wire.budgets_call(at, MAX_RULES_PER_CALL))

    def proposals(self) -> list[dict[str, Any]]:
        """What waits for a second person."""
        return self._send(wire.proposals())

    def approve(self, proposal: int, because: str = "") -> Decision | int:
        """Do what another person proposed."""
        return self._send(wire.answer_call(proposal, because, approve=True))

    def reject(self, proposal: int, because: str = "") -> Decision | int:
        """Refuse what another person proposed."""
        return self._send(wire.answer_call(proposal, because, approve=False))

    def records(self, since: Head | None = None) -> Iterator[Record]:
        """The records behind a head, each checked to follow the one before it."""
        head = since or Head(0, GENESIS)
        while page := self._send(wire.records_call(head.sequence, RECORDS_PER_PAGE)):
            head = advance_head(head, page)
            yield from page

    def whoami(self) -> dict[str, Any]:
        """Who the service takes the caller for."""
        return self._send(wire.whoami_call())

    def _send(self, ask: ApiCall[T]) -> T:
        attempts = _Attempts(ask)
        for pause in (*RETRY_DELAYS, None):
            try:
                attempts.answer = self._note(self._http.request(**self._request(ask)))
            except httpx.TransportError as error:
                attempts.record_failure(error)
            if attempts.is_finished or pause is None:
                break
            time.sleep(pause)
        try:
            result: T = attempts.result()
            return result
        except DPolicyError as error:
            found = self.release(_name_of(ask)) if attempts.may_have_succeeded(error) else {}
            if found.get("status") != ask.ended or ask.ended is None:
                raise
            return ask.read(found)


class AsyncClient(_Session):
    """The same for programs that do many things at once."""

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        super().__init__(url, token)
        self._http = httpx.AsyncClient(headers=self._headers, timeout=timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it. Raises `Waiting` if a second person has to agree."""
        return await self._send(wire.submit_call(release, by, reserve=False))

    async def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and hold its cost until it is committed or voided."""
        return await self._send(wire.submit_call(release, by, reserve=True))

    async def check(self, release: Release | Body) -> Decision:
        """What `submit` would answer now; nothing is written."""
        return await self._send(wire.check_call(release))

    async def commit(self, release: str, used: Release | Body | None = None, by: str = "") -> int:
        """End a reservation that was used, wholly or in part; the number of its event."""
        return await self._send(wire.commit_call(release, used))

    async def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation of which nothing was computed. Raises `Waiting` if two must agree."""
        return await self._send(wire.void_call(release, because))

    async def release(self, release: str) -> dict[str, Any]:
        """How a release stands, what was asked, and what was decided."""
        return await self._send(wire.show_call(release))

    async def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] = (),
        by: str = "",
        because: str = "",
    ) -> int:
        """Put a policy in force. Raises `Conflicting`, or `Waiting` if two must agree."""
        return await self._send(wire.apply_call(policy, accept, because))

    async def plan(
        self, policy: CompiledPolicy | str | Path, *, replay: bool = True
    ) -> dict[str, Any]:
        """What a candidate would change; nothing is written."""
        return await self._send(wire.plan_call(policy, replay=replay))

    async def import_past(self, release: Release | Body, because: str = "", by: str = "") -> int:
        """Charge a release that has already happened, whatever the budgets say."""
        return await self._send(wire.import_call(release, because))

    async def allocate(
        self,
        releases: Sequence[Release | Body],
        strategy: str = "efficient",
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Choose among releases and charge the winners together."""
        return await self._send(wire.allocate_call(releases, strategy, dry_run=dry_run))

    async def proposals(self) -> list[dict[str, Any]]:
        """What waits for a second person."""
        return await self._send(wire.proposals())

    async def approve(self, proposal: int, because: str = "") -> Decision | int:
        """Do what another person proposed."""
        return await self._send(wire.answer_call(proposal, because, approve=True))

    async def reject(self, proposal: int, because: str = "") -> Decision | int:
        """Refuse what another person proposed."""
        return await self._send(wire.answer_call(proposal, because, approve=False))

    async def records(self, since: Head | None = None) -> AsyncIterator[Record]:
        """The records behind a head, each checked to follow the one before it."""
        head = since or Head(0, GENESIS)
        while page := await self._send(wire.records_call(head.sequence, RECORDS_PER_PAGE)):
            head = advance_head(head, page)
            for record in page:
                yield record

    async def whoami(self) -> dict[str, Any]:
        """Who the service takes the caller for."""
        return await self._send(wire.whoami_call())

    async def budgets(self, at: Mapping[str, str] | None = None) -> list[RemoteRuleStatus]:
        """What was spent of each budget, the fullest first."""
        return await self._send(wire.budgets_call(at, MAX_RULES_PER_CALL))

    async def _send(self, ask: ApiCall[T]) -> T:
        attempts = _Attempts(ask)
        for pause in (*RETRY_DELAYS, None):
            try:
                attempts.answer = self._note(await self._http.request(**self._request(ask)))
            except httpx.TransportError as error:
                attempts.record_failure(error)
            if attempts.is_finished or pause is None:
                break
            await asyncio.sleep(pause)
        try:
            result: T = attempts.result()
            return result
        except DPolicyError as error:
            found = await self.release(_name_of(ask)) if attempts.may_have_succeeded(error) else {}
            if found.get("status") != ask.ended or ask.ended is None:
                raise
            return ask.read(found)


def _name_of(ask: ApiCall[Any]) -> str:
    """The release that a request is about."""
    return httpx.URL(ask.path).path.split("/", 3)[3].rpartition("/")[0]
