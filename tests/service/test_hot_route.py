"""The quick route for submissions gives the responses of the application, its naive twin."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.servers import POLICY, access, release, token
from tests.service.test_races import open_point, sources

from dpolicy.errors import LedgerUnavailable, OperationRejected, RequestRefused
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.commands import ANY_POLICY
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.many_releases.batch_commands import Submission
from dpolicy.pdp.plans.planned_requests import PlannedRequest
from dpolicy.rules.compiler import compile_policy
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_file import load_access
from dpolicy.service.auth.access_rules import AccessRules, ApprovalRules, local_access
from dpolicy.service.hot_route import submit_route
from dpolicy.service.hot_route.known_bodies import split_body
from dpolicy.service.hot_route.submission_queue import SubmissionQueue
from dpolicy.service.hot_route.submit_route import MAX_QUICK_BYTES, SubmitRoute
from dpolicy.service.http.admission import _TurnMemo
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.release_shapes import SubmissionShape
from dpolicy.service.http.request_body import parse_body

MORE_ACCESS = """\
restricted: {deployment: [black-box]}
approval: {when: 'labels.stage == "tuning"'}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> AccessRules:
    path = tmp_path_factory.mktemp("rules") / "access.yaml"
    path.write_text(access(MORE_ACCESS))
    return load_access(path)


def read_clock() -> datetime:
    """Return the time of all ledgers, so that equal events have equal records."""
    return datetime(2026, 3, 9, 12, tzinfo=UTC)


class Twins:
    """Two ledgers with the same history: one behind the quick route, one behind the application.

    `hits` has the known contents that the quick route used.
    """

    def __init__(self, rules: Callable[[], AccessRules], limits: ServiceLimits) -> None:
        self.points = [DecisionPoint(MemoryStore(), read_clock) for _ in range(2)]
        for point in self.points:
            point.apply(compile_policy(sources(POLICY)), by="setup")
        apps = [create_app(point, rules, limits) for point in self.points]
        self.route = SubmitRoute(apps[0], limits)
        self.hits: list[Any] = []
        self._count_hits()
        self._runner = asyncio.Runner()
        self._transports: list[Any] = [
            httpx.ASGITransport(app=self.route, raise_app_exceptions=False),
            httpx.ASGITransport(app=apps[1], raise_app_exceptions=False),
        ]

    def close(self) -> None:
        self._runner.close()
        self.route.close()
        for point in self.points:
            point.close()

    def _count_hits(self) -> None:
        known = self.route._known
        find = known.find

        def find_and_count(*arguments: Any) -> Any:
            found = find(*arguments)
            self.hits += [found] if found is not None else []
            return found

        known.find = find_and_count  # type: ignore[method-assign, assignment]

    def post_all(self, requests: Sequence[dict[str, Any]]) -> list[list[httpx.Response]]:
        """Send each request to both, one after the other; return the responses of each."""

        async def send_all(transport: Any) -> list[httpx.Response]:
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return [await client.request("POST", "/v1/releases", **r) for r in requests]

        return [self._runner.run(send_all(transport)) for transport in self._transports]


def request(body: Any, person: str | None = "ana", **more: Any) -> dict[str, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", **more.pop("headers", {})}
    if person is not None:
        headers["authorization"] = f"Bearer {token(person)}"
    return {"content": content, "headers": headers, **more}


def comparable(response: httpx.Response) -> Any:
    """Return everything about a response but the form of its JSON.

    The position has the hash of the ledger, so equal responses have equal records before them.
    """
    headers = dict(response.headers)
    headers.pop("content-length")
    return response.status_code, headers, response.json()


MANY = [
    release("a", "0.25"),
    release("a", "0.25"),
    release("b", "0.25"),
    release("c", "0.25"),
    release("a", "0.5"),
    release("d", "3"),
    release("d", "3"),
    release("e", attributes=["zip"], epsilon="0.75"),
    release("f", attributes=["zip"], epsilon="0.75"),
    {**release("g"), "mode": "reserve"},
    release("g"),
    {**release("h"), "mode": "commit"},
    {**release("i"), "mode": "free"},
    release("j", labels={"stage": "tuning"}),
    release("j", labels={"stage": "tuning"}),
    release("k", labels={"deployment": "black-box"}),
    release("l", labels={"unknown": "x"}),
    release("m", unknown=1),
    {**release("n"), "by": "ben"},
    {**release("o"), "by": "ana"},
    {"mechanisms": release("p")["mechanisms"], "release": "p"},
    {"mechanisms": release("q")["mechanisms"], "release": "q"},
    {"mechanisms": release("q")["mechanisms"], "release": "q"},
    [],
    {},
    "text",
    b"",
    b"{",
    b'{"release": "\xff"}',
    b'{"release": "\\ud800", "mechanisms": []}',
    b'{"release": "r", "release": "r", "mechanisms": []}',
    b"[" * 2_000 + b"]" * 2_000,
    json.dumps(release("s")).replace("0.001", "NaN").encode(),
    json.dumps(release("t")).replace("0.001", "1e400").encode(),
    json.dumps(release("u")).replace('"u"', '"-u"').encode(),
    release("x" * 200),
    release("large", attributes=["zip"] * MAX_QUICK_BYTES),
]
REQUESTS = [
    *(request(body) for body in MANY),
    request(release("p1"), person=None),
    request(release("p2"), person="pia"),
    request(release("p3"), person="eve"),
    request(release("p4"), person="ben"),
    request(release("p5"), headers={"content-type": "text/plain"}),
    request(release("p6"), headers={"content-type": "application/json; charset=utf-8"}),
    request(release("p7"), params={"x": "1"}),
    request(release("p8"), headers={"origin": "http://evil.example"}),
    request(release("p9"), person=None, headers={"origin": "http://evil.example"}),
    request(release("p10"), headers={"content-length": "99999999"}),
    request(release("p11"), headers={"host": "other.example"}),
    request(release("p12"), person=None, headers={"cookie": f"dpolicy-token={token('ana')}"}),
    request(release("p13"), person=None, headers={"authorization": "Bearer a.b.c"}),
    request(release("p14"), person=None, headers={"authorization": "Basic YTpi"}),
    request(release("p15"), person=None, headers={"accept": "text/html"}),
]


def test_both_routes_give_the_same_responses(rules: AccessRules) -> None:
    twins = Twins(lambda: rules, ServiceLimits())
    quick, slow = twins.post_all(REQUESTS)
    for sent, one, other in zip(REQUESTS, quick, slow, strict=True):
        assert comparable(one) == comparable(other), sent["content"][:200]
    assert {r.status_code for r in quick} >= {200, 202, 400, 401, 403, 413, 415, 422}
    assert len(twins.hits) >= 2  # the contents of `c` and of the second `q`
    twins.close()


@pytest.mark.parametrize(("count", "is_quick"), [(16, True), (17, False)])
def test_a_release_with_many_mechanisms_is_planned_in_a_thread(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch, count: int, is_quick: bool
) -> None:
    """It would delay other requests on the event loop."""
    threads: list[threading.Thread] = []
    plan = DecisionPoint.plan_request

    def plan_and_record(self: DecisionPoint, *arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return plan(self, *arguments)

    monkeypatch.setattr(DecisionPoint, "plan_request", plan_and_record)
    twins = Twins(lambda: rules, ServiceLimits())
    many = release("many", "0.01")
    many["mechanisms"] = [{**many["mechanisms"][0], "name": f"m{n}"} for n in range(count)]
    (responses, _) = twins.post_all([request(many)])
    twins.close()
    assert responses[0].status_code == 200
    assert [thread is threading.main_thread() for thread in threads] == [is_quick]


def test_both_routes_count_the_same(rules: AccessRules) -> None:
    points = [open_point(POLICY), open_point(POLICY)]
    apps = [create_app(point, lambda: rules, ServiceLimits()) for point in points]
    route = SubmitRoute(apps[0], ServiceLimits())

    async def send(app: Any) -> None:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for sent in REQUESTS:
                await client.request("POST", "/v1/releases", **sent)

    asyncio.run(send(route))
    asyncio.run(send(apps[1]))
    assert _counters(apps[0].state.metrics) == _counters(apps[1].state.metrics)
    route.close()


def _counters(metrics: Any) -> Any:
    return metrics._requests, metrics._decisions


def test_without_an_access_file_only_local_hosts_are_served() -> None:
    twins = Twins(local_access, ServiceLimits())
    sent = [
        request(release("a"), person=None),
        request({**release("b"), "by": "ben"}, person=None),
        request(release("c"), person=None, headers={"host": "other.example"}),
        request(release("d"), person=None, headers={"sec-fetch-site": "cross-site"}),
    ]
    quick, slow = twins.post_all(sent)
    assert list(map(comparable, quick)) == list(map(comparable, slow))
    assert [r.status_code for r in quick] == [200, 200, 421, 403]
    twins.close()


def test_both_routes_have_the_same_rate_limit(rules: AccessRules) -> None:
    twins = Twins(lambda: rules, ServiceLimits(rate=1e-9, burst=3.0))
    quick, slow = twins.post_all([request(release(f"r{n}")) for n in range(5)])
    assert [r.status_code for r in quick] == [r.status_code for r in slow]
    assert [r.status_code for r in quick] == [200, 200, 200, 429, 429]
    assert comparable(quick[4]) == comparable(slow[4]) and quick[4].headers["retry-after"]
    twins.close()


def test_an_unreadable_access_file_refuses_submissions() -> None:
    def refuse() -> AccessRules:
        raise RequestRefused("access-unreadable", "the access file of the server has errors")

    twins = Twins(refuse, ServiceLimits())
    quick, slow = twins.post_all([request(release("a"))])
    assert comparable(quick[0]) == comparable(slow[0]) and quick[0].status_code == 503
    twins.close()


def test_a_failed_commit_and_an_unexpected_error_are_the_same(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, status in ((LedgerUnavailable("no space left"), 503), (KeyError("bug"), 500)):
        twins = Twins(lambda: rules, ServiceLimits())

        def fail(self: MemoryStore, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(MemoryStore, "open_for_writing", fail)
        quick, slow = twins.post_all([request(release("a"))])
        assert quick[0].status_code == slow[0].status_code == status
        assert quick[0].json() == slow[0].json()
        monkeypatch.undo()
        twins.close()


def change_policy_and_access_rules(rules: AccessRules) -> None:
    """Send a known content under other policies and other access rules, and compare the routes.

    The last rules do not know the caller; those before let the content wait for approval.
    """
    current = [rules]
    twins = Twins(lambda: current[0], ServiceLimits())
    first = twins.post_all([request(release(f"a{n}")) for n in range(3)])
    assert twins.hits
    tuning = POLICY.replace("default: final", "default: tuning")
    for point in twins.points:
        point.apply(compile_policy(sources(tuning)))
    second = twins.post_all([request(release(f"b{n}")) for n in range(2)])
    for point in twins.points:
        point.apply(compile_policy(sources(POLICY)))
    third = twins.post_all([request(release(f"c{n}")) for n in range(2)])
    current[0] = replace(rules, approval=ApprovalRules(when='labels.stage == "final"'))
    fourth = twins.post_all([request(release("d0"))])
    people = {name: person for name, person in rules.people.items() if name != "ana"}
    current[0] = replace(rules, people=people)
    fifth = twins.post_all([request(release("e0"))])
    rounds = (first, second, third, fourth, fifth)
    for quick, slow in rounds:
        assert list(map(comparable, quick)) == list(map(comparable, slow))
    assert [r[0][-1].status_code for r in rounds] == [200, 202, 200, 202, 401]
    twins.close()


def test_a_known_content_follows_the_policy_and_the_access_rules(rules: AccessRules) -> None:
    """A plan of an older policy, and a permission of older rules, must not be used."""
    change_policy_and_access_rules(rules)


def test_a_permission_of_older_access_rules_is_detected(
    rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary: a caller who keeps the permission of the rules of an earlier request."""
    monkeypatch.setattr(submit_route._Caller, "is_same", lambda self, other: True)
    with pytest.raises(AssertionError, match=r"\(200, .* == \[\(202, "):
        change_policy_and_access_rules(rules)


CONTENTS = st.sampled_from(
    [
        json.dumps(release("ID", "0.0001")),
        json.dumps(release("ID", "0.0001", attributes=["views"])),
        json.dumps({"mechanisms": release("x")["mechanisms"], "release": "ID"}),
        json.dumps({"by": "ana", "mechanisms": release("x")["mechanisms"], "release": "ID"}),
        json.dumps(release("ID"))[:-1] + ', "release": "ID"}',
        '{"mechanisms": [{"name": "a,"release":"ID"}',
        '{"release":"ID"',
        '{"by": {"release":"ID"}}',
        json.dumps({**release("x"), "by": "ID"}),
        json.dumps({**release("ID"), "mode": "reserve"}),
    ]
)
IDS = st.sampled_from(["a", "b", "c1", "d-e", "f.g:h", "-bad", "x" * 101, "ümlaut", "a\\u0062"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(CONTENTS, IDS), min_size=1, max_size=8))
def test_known_bodies_mean_what_the_parser_reads(pairs: list[tuple[str, str]]) -> None:
    twins = Twins(local_access, ServiceLimits())
    bodies = [content.replace("ID", name).encode() for content, name in pairs]
    quick, slow = twins.post_all([request(body, person=None) for body in bodies])
    assert list(map(comparable, quick)) == list(map(comparable, slow))
    payloads = [[r.payload for r in point.records()] for point in twins.points]
    assert payloads[0] == payloads[1]
    twins.close()


def test_the_id_of_a_split_body_is_the_id_of_the_release() -> None:
    for body in (release("a.b-1"), {"mechanisms": release("x")["mechanisms"], "release": "z"}):
        for data in (
            json.dumps(body),
            json.dumps(body, separators=(",", ":")),
            json.dumps(body, indent=1),
        ):
            parts = split_body(data.encode())
            assert parts is not None
            parsed, _ = parse_body(data.encode(), SubmissionShape(), ServiceLimits())
            assert parts.id == parsed.id
            assert parts.before + parts.id.encode() + parts.after == data.encode()


# The queue


def submission(name: str) -> Submission:
    return Submission(PlannedRequest(name, None, None), "", ANY_POLICY)


def test_one_commit_and_one_wake_up_serve_all_that_wait() -> None:
    batches: list[list[str]] = []
    wake_ups = 0

    def decide(batch: Sequence[Submission]) -> list[Any]:
        batches.append([s.request.id for s in batch])
        return [s.request.id for s in batch]

    async def run() -> list[Any]:
        nonlocal wake_ups
        loop = asyncio.get_running_loop()
        original = loop.call_soon_threadsafe

        def count(*arguments: Any, **more: Any) -> Any:
            nonlocal wake_ups
            wake_ups += 1
            return original(*arguments, **more)

        loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]
        queue = SubmissionQueue(decide)
        results = await asyncio.gather(*(queue.submit(submission(f"r{n}")) for n in range(600)))
        queue.close()
        return list(results)

    results = asyncio.run(run())
    assert results == [f"r{n}" for n in range(600)]
    assert [len(batch) for batch in batches] == [256, 256, 88] and wake_ups == 3


def test_an_answer_comes_after_the_commit() -> None:
    """A queue that answers before `decide` returns would lose releases in a crash."""
    may_commit, committed = threading.Event(), threading.Event()

    def decide(batch: Sequence[Submission]) -> list[Any]:
        may_commit.wait(10)
        committed.set()
        return ["done" for _ in batch]

    async def run() -> None:
        queue = SubmissionQueue(decide)
        future = queue.submit(submission("a"))
        await asyncio.sleep(0.05)
        assert not future.done()
        may_commit.set()
        assert await future == "done" and committed.is_set()
        queue.close()

    asyncio.run(run())


def test_an_error_of_a_commit_reaches_every_request_and_the_queue_continues() -> None:
    fails = True

    def decide(batch: Sequence[Submission]) -> list[Any]:
        if fails:
            raise LedgerUnavailable("no space left")
        return [OperationRejected("refused") for _ in batch]

    async def run() -> None:
        nonlocal fails
        queue = SubmissionQueue(decide)
        both = await asyncio.gather(
            *(queue.submit(submission(n)) for n in "ab"), return_exceptions=True
        )
        assert [type(error) for error in both] == [LedgerUnavailable, LedgerUnavailable]
        fails = False
        assert isinstance(await queue.submit(submission("c")), OperationRejected)
        cancelled = queue.submit(submission("d"))
        cancelled.cancel()
        assert isinstance(await queue.submit(submission("e")), OperationRejected)
        queue.close()

    asyncio.run(run())


class Interruption(BaseException):
    """An error that is no `Exception`."""


def test_an_interruption_fails_what_waits_and_the_queue_continues() -> None:
    interrupts = True

    def decide(batch: Sequence[Submission]) -> list[Any]:
        if interrupts:
            raise Interruption
        return ["done" for _ in batch]

    async def run() -> None:
        nonlocal interrupts
        queue = SubmissionQueue(decide)
        both = await asyncio.wait_for(
            asyncio.gather(*(queue.submit(submission(n)) for n in "ab"), return_exceptions=True), 10
        )
        for error in both:
            assert isinstance(error, RuntimeError)
            assert isinstance(error.__cause__, Interruption)
        interrupts = False
        assert await asyncio.wait_for(queue.submit(submission("c")), 10) == "done"
        queue.close()

    asyncio.run(run())


def test_a_queue_without_a_thread_fails_the_request_and_starts_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        queue = SubmissionQueue(lambda batch: ["done" for _ in batch])
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail_to_start)
            with pytest.raises(LedgerUnavailable, match="no thread can start"):
                queue.submit(submission("a"))
        assert await asyncio.wait_for(queue.submit(submission("b")), 10) == "done"
        queue.close()

    def fail_to_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.run(run())


def test_a_wake_up_without_memory_is_repeated() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        original, failures = loop.call_soon_threadsafe, [MemoryError(), MemoryError()]

        def wake(*arguments: Any, **more: Any) -> Any:
            if failures:
                raise failures.pop()
            return original(*arguments, **more)

        loop.call_soon_threadsafe = wake  # type: ignore[method-assign, assignment]
        queue = SubmissionQueue(lambda batch: ["done" for _ in batch])
        assert await asyncio.wait_for(queue.submit(submission("a")), 10) == "done"
        assert await asyncio.wait_for(queue.submit(submission("b")), 10) == "done"
        queue.close()

    asyncio.run(run())


def test_closing_decides_what_waits() -> None:
    decided: list[str] = []

    def decide(batch: Sequence[Submission]) -> list[Any]:
        decided.extend(s.request.id for s in batch)
        return ["done" for _ in batch]

    async def run() -> None:
        queue = SubmissionQueue(decide)
        queue.submit(submission("a"))
        await asyncio.sleep(0)
        queue.close()

    asyncio.run(run())
    assert decided == ["a"]


def test_access_rules_are_read_in_every_turn_of_the_event_loop() -> None:
    reads = 0

    def read() -> AccessRules:
        nonlocal reads
        reads += 1
        return local_access()

    memo = _TurnMemo(read)

    async def run() -> None:
        memo()
        memo()
        assert reads == 1
        await asyncio.sleep(0)
        memo()
        assert reads == 2

    asyncio.run(run())
