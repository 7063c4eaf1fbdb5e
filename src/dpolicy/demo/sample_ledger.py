"""Marlow Mobility, a company that is made up → its ledger: a year of releases under two policies.

Besides reports that return, there is a release from before the ledger, an allocation round, models
trained under reservations, one of which was given back and one of which is still open, a release
that was denied, and one that waits for a second person. All is decided as it would be in earnest;
only the clock is turned back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any

from dpolicy.allocation.batch_file import parse_batch
from dpolicy.allocation.round import allocate
from dpolicy.demo.sample_requests import (
    SampleRequest,
    days,
    generate_year,
    mechanism,
    request,
    training_mechanism,
    utc_time,
)
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source

#: The budget of marketing in the first half of the year, and then.
_FIRST, _THEN = "budget: {epsilon: 4.5}", "budget: {epsilon: 3}"


@dataclass(slots=True)
class _Clock:
    """Time as the company lived it."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


def policy_text() -> str:
    """The policy that is in force."""
    return text("policy.yaml")


def candidate_text() -> str:
    """A policy that an officer might wish for; the past has already broken one of its rules."""
    tighter = "except: {home-zone: {epsilon: 2.5}}"
    return policy_text().replace("except: {home-zone: {epsilon: 3.5}}", tighter)


def round_text(today: date) -> str:
    """Releases that compete in the next round, about the four weeks before a day."""
    first, last = today - timedelta(days=28), today - timedelta(days=1)
    return text("round.yaml").replace("FIRST", f"{first}").replace("LAST", f"{last}")


def text(name: str) -> str:
    """A text that is shipped with the company."""
    return files("dpolicy.demo").joinpath("texts", name).read_text("utf-8")


def write_sample_ledger(store: LedgerStore, now: datetime) -> None:
    """Write the company's year into an empty ledger, in one commit."""
    past = MemoryStore()
    clock = _Clock(now)
    point = DecisionPoint(past, clock)
    for moment_, act in sorted(_year(point, now), key=lambda item: item[0]):
        clock.now = moment_
        act()
    with store.open_for_writing() as log:
        log.append(list(past.records_after(0)))


#: When something happens, and what.
_Act = tuple[datetime, Any]


def _year(point: DecisionPoint, now: datetime) -> Iterator[_Act]:
    """All that happened in the company's year."""
    today = now.astimezone(UTC).date()
    begun = utc_time(today - timedelta(days=366), 9)
    yield (
        begun,
        lambda: point.apply(
            _compiled(policy_text().replace(_THEN, _FIRST)),
            by="iris.okafor",
            because="first",
        ),
    )
    yield begun + timedelta(hours=2), lambda: _import(point, today)
    for asked in generate_year(today):
        yield from _asked(point, asked)
    middle = utc_time(today - timedelta(days=170), 13)
    yield (
        middle,
        lambda: point.apply(
            _compiled(policy_text()), by="iris.okafor", because="less for marketing, by the board"
        ),
    )
    yield (
        middle + timedelta(days=60),
        lambda: allocate(
            point, _round((middle + timedelta(days=60)).date()), "efficient", by="release-board"
        ),
    )
    yield from _this_week(point, now)


def _asked(point: DecisionPoint, request: SampleRequest) -> Iterator[_Act]:
    if not request.reserved:
        yield request.at, lambda: point.submit(request.body)
        return
    name, by = request.body["release"], request.body["by"]
    yield request.at, lambda: point.reserve(request.body)
    yield request.at + timedelta(hours=9), lambda: point.commit(name, by=by)


def _import(point: DecisionPoint, today: date) -> None:
    year = today.year - 2
    whole = days(date(year, 1, 1), date(year, 12, 31))
    said = mechanism(["home-zone", "route"], "research", "4.2", name="journeys", time=whole)
    body = request(f"mobility-report-{year}", "mobility-lab", said)
    point.import_past(body, because="published before the ledger began", by="iris.okafor")


def _this_week(point: DecisionPoint, now: datetime) -> Iterator[_Act]:
    """What the dashboard shows first: a denial, a reservation given back, and one still open."""
    today = now.date()
    recent = days(today - timedelta(days=28), today - timedelta(days=1))
    asked = ["age-band", "home-zone"]
    wanted = mechanism(asked, "marketing", "3", name="heat-map", time=recent)
    heat_map = request("home-zone-heat-map", "marketing", wanted)
    yield now - timedelta(hours=5), lambda: point.submit(heat_map)
    probe = request(
        "card-fraud-probe", "finance", mechanism(["card-type"], "product", "9", time=recent)
    )
    yield now - timedelta(hours=4), lambda: point.reserve(probe)
    yield (
        now - timedelta(hours=3),
        lambda: point.void(
            "card-fraud-probe", because="the job never started: no data was read", by="iris.okafor"
        ),
    )
    model = mechanism(
        ["stations"],
        "product",
        mechanism=training_mechanism("2", "0.003", 1200),
        labels={"deployment": "black-box"},
        name="model",
        time=recent,
    )
    crowding = request("crowding-model", "ml-platform", model)
    yield now - timedelta(hours=2), lambda: point.reserve(crowding)
    study = mechanism(["age-band", "trips"], "research", "14", name="index", time=recent)
    index = request("student-travel-index", "mobility-lab", study)
    yield now - timedelta(hours=1), lambda: point.propose(index, by="lena.fischer")


def _round(day: date) -> list[Any]:
    """The releases that competed in the round of this year, under names of their own."""
    found = DiagnosticCollector()
    entries = parse_batch(Source("round.yaml", round_text(day)), found)
    return [_renamed(entry.release.body, day) for entry in entries]


def _renamed(body: Any, day: date) -> dict[str, Any]:
    return {**body, "release": f"{body['release']}-{day:%Y-%m}"}


def _compiled(text_: str) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", text_)])
