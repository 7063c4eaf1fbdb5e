"""`AsyncClient`: the methods of `Client` for asynchronous programs. The calls are in `wire.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from dpolicy.client import wire
from dpolicy.client.question_calls import headroom_call, spent_call
from dpolicy.client.submission_calls import submit_many_call
from dpolicy.client.transport import (
    MAX_RULES_PER_CALL,
    RECORDS_PER_PAGE,
    TIMEOUT,
    Attempts,
    Session,
)
from dpolicy.client.wire import ApiCall, RemoteRuleStatus
from dpolicy.errors import DPolicyError, OperationRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head, advance_head
from dpolicy.releases.decision import Decision
from dpolicy.releases.python.budget_table import Budgets

if TYPE_CHECKING:
    from datetime import date
    from fractions import Fraction

    from dpolicy.releases.body import Body
    from dpolicy.releases.release import Release
    from dpolicy.rules.compiler import CompiledPolicy

T = TypeVar("T")


class AsyncClient(Session):
    """Client of a server, for asynchronous programs: the methods of `Client`, awaitable."""

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        super().__init__(url, token)
        self._http = httpx.AsyncClient(headers=self._headers, timeout=timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it. Raise `ApprovalRequired` if it needs approval."""
        return await self._execute(wire.submit_call(release, by, reserve=False))

    async def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and reserve its cost until it is committed or voided."""
        return await self._execute(wire.submit_call(release, by, reserve=True))

    async def submit_many(
        self, releases: Sequence[Release | Body], by: str = ""
    ) -> list[Decision | DPolicyError]:
        """Decide up to 256 independent releases in one request and charge them.

        Return for each the decision that `submit` would return, or the error that it would raise.
        """
        return await self._execute(submit_many_call(releases, by))

    async def check(self, release: Release | Body) -> Decision:
        """Return the decision that `submit` would return now. Nothing is written."""
        return await self._execute(wire.check_call(release))

    async def headroom(
        self, release: Release | Body | str, *, most_accurate: bool = False
    ) -> dict[str, Any]:
        """Return how many more releases like this one `submit` would allow now, for each rule.
        `release` is a release, or the id of a recorded one. Nothing is written.
        """
        return await self._execute(headroom_call(release, most_accurate))

    async def spent(
        self,
        when: str | None = None,
        *,
        rule: str | None = None,
        unit: str | None = None,
        at: Mapping[str, str] | None = None,
        since: date | str | None = None,
        by: Sequence[str] | str | None = None,
        delta: Fraction | float | str | None = None,
        limit: int = 1_000,
    ) -> dict[str, Any]:
        """Return what recorded releases spent in a scope, at the place with the largest ε at δ.
        The scope is a CEL expression or the name of a rule; the default is all releases.
        """
        return await self._execute(spent_call(when, rule, unit, at, since, by, delta, limit))

    async def commit(self, release: str, used: Release | Body | None = None) -> int:
        """End a reservation as used, wholly or in part. Return the number of the record."""
        return await self._execute(wire.commit_call(release, used))

    async def void(self, release: str, because: str) -> int:
        """End a reservation as unused; `because` attests that nothing was computed from data.
        Return the number of the record. Raise `ApprovalRequired` if it needs approval.
        """
        return await self._execute(wire.void_call(release, because))

    async def release(self, release: str) -> dict[str, Any]:
        """Return status, author, body and decision of a release."""
        return await self._execute(wire.show_call(release))

    async def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] | str = (),
        *,
        because: str = "",
    ) -> int:
        """Activate a policy and return the number of the record. Raise `PolicyConflicts` unless
        `accept` names every conflict, and `ApprovalRequired` if it needs approval.
        """
        return await self._execute(wire.apply_call(policy, accept, because))

    async def plan(
        self, policy: CompiledPolicy | str | Path, *, replay: bool = True
    ) -> dict[str, Any]:
        """Return the changes, conflicts and changed decisions of a candidate policy. Nothing is
        written. Without `replay`, recorded releases are not decided again.
        """
        return await self._execute(wire.plan_call(policy, replay=replay))

    async def import_past(
        self, release: Release | Body, because: str = "", *, released: str | None = None
    ) -> int:
        """Record a past release and charge it, even if a budget is exceeded. Return the number of
        the record. `released` is the day on which it happened, such as `2024-03-01`.
        """
        return await self._execute(wire.import_call(release, because, released))

    async def allocate(
        self,
        releases: Sequence[Release | Body],
        strategy: str = "efficient",
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Run an allocation round: select releases and charge the selected ones together."""
        return await self._execute(wire.allocate_call(releases, strategy, dry_run=dry_run))

    async def budgets(
        self, at: Mapping[str, str] | None = None, *, pruned: bool = False
    ) -> Budgets[RemoteRuleStatus]:
        """Return the status of each rule at its most used location, or at the most used location
        that matches `at`, such as `{"country": "CH"}`; most used rules first. With `pruned`, return
        the pruned rules too.
        """
        return await self._execute(wire.budgets_call(at, pruned, MAX_RULES_PER_CALL))

    async def proposals(self) -> list[dict[str, Any]]:
        """Return the open proposals, newest first."""
        return await self._execute(wire.proposals_call())

    async def approve(self, proposal: int, because: str = "") -> Decision | int:
        """Approve and execute a proposal of another person. Return the decision if it proposes a
        release, else the number of the record.
        """
        return await self._execute(wire.answer_call(proposal, because, approve=True))

    async def reject(self, proposal: int, because: str = "") -> Decision | int:
        """Reject a proposal of another person. Return the number of the record."""
        return await self._execute(wire.answer_call(proposal, because, approve=False))

    async def whoami(self) -> dict[str, Any]:
        """Return name, roles and grants of the caller."""
        return await self._execute(wire.whoami_call())

    async def records(self, since: Head | None = None) -> AsyncIterator[Record]:
        """Yield the records after the head `since`, or all records. Raise `LedgerDamaged` if a
        record does not follow the hash chain.
        """
        head = since or Head()
        while page := await self._execute(wire.records_call(head.sequence, RECORDS_PER_PAGE)):
            head = advance_head(head, page)
            for record in page:
                yield record

    async def _execute(self, call: ApiCall[T]) -> T:
        attempts = Attempts(call)
        while True:
            try:
                response = await self._http.request(**self._request_arguments(call))
                self._update_position(response)
                attempts.record_response(response)
            except httpx.TransportError as error:
                attempts.record_failure(error)
            delay = attempts.next_delay()
            if delay is None:
                break
            await asyncio.sleep(delay)
        try:
            return attempts.result()
        except OperationRejected as error:
            end = attempts.possible_end(error)
            if end is None:
                raise
            payload = await self.release(end.release)
            if payload["status"] != end.status:
                raise
            return call.decode(payload)
