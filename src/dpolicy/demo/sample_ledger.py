"""Sample ledger of Marlow Mobility, a fictional company: one year of releases under two policies.

The ledger contains regular reports, an imported release, an allocation round, models trained under
reservations (one voided, one still open), a denied release, and a release that is pending approval.
Every decision is made by the real decision point, with a clock set to the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

#: Budget of marketing in the first and in the second half of the year.
_FIRST_BUDGET, _SECOND_BUDGET = "budget: {epsilon: 4.5}", "budget: {epsilon: 3}"


@dataclass(slots=True)
class _Clock:
    """Clock of the sample year."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


def policy_text() -> str:
    """Return the text of the active policy."""
    return read_text("policy.yaml")


def candidate_text() -> str:
    """Return the text of a tighter policy; recorded releases already exceed one of its rules."""
    tighter = "except: {home-zone: {epsilon: 2.5}}"
    return policy_text().replace("except: {home-zone: {epsilon: 3}}", tighter)


def round_text(today: date) -> str:
    """Return the releases of the next round, on the data of the four weeks before `today`."""
    first, last = today - timedelta(days=28), today - timedelta(days=1)
    return read_text("round.yaml").replace("FIRST", f"{first}").replace("LAST", f"{last}")


def read_text(name: str) -> str:
    """Read a text file of the demo."""
    return files("dpolicy.demo").joinpath("texts", name).read_text("utf-8")


def write_sample_ledger(store: LedgerStore, now: datetime) -> None:
    """Write the sample year to an empty ledger in one commit."""
    sample = MemoryStore()
    clock = _Clock(now)
    point = DecisionPoint(sample, clock)
    for timestamp, action in sorted(_sample_year(point, now), key=lambda item: item[0]):
        clock.now = timestamp
        action()
    with store.open_for_writing() as log:
        log.append(list(sample.records_after(0)))


#: Time of an action, and the action, a function without parameters.
_TimedAction = tuple[datetime, Callable[[], object]]


def _sample_year(point: DecisionPoint, now: datetime) -> Iterator[_TimedAction]:
    """Yield all actions of the year, in no particular order."""
    today = now.astimezone(UTC).date()
    start = utc_time(today - timedelta(days=366), 9)
    yield (
        start,
        lambda: point.apply(
            _compile(policy_text().replace(_SECOND_BUDGET, _FIRST_BUDGET)),
            by="iris.okafor",
            because="first",
        ),
    )
    yield start + timedelta(hours=2), lambda: _import_report(point, today)
    for sample_request in generate_year(today):
        yield from _request_actions(point, sample_request)
    middle = utc_time(today - timedelta(days=170), 13)
    yield (
        middle,
        lambda: point.apply(
            _compile(policy_text()), by="iris.okafor", because="less for marketing, by the board"
        ),
    )
    yield (
        middle + timedelta(days=60),
        lambda: allocate(
            point,
            _round_releases((middle + timedelta(days=60)).date()),
            "efficient",
            by="release-board",
        ),
    )
    yield from _recent_events(point, now)


def _request_actions(point: DecisionPoint, request: SampleRequest) -> Iterator[_TimedAction]:
    if not request.reserved:
        yield request.at, lambda: point.submit(request.body)
        return
    name, by = request.body["release"], request.body["by"]
    yield request.at, lambda: point.reserve(request.body)
    yield request.at + timedelta(hours=9), lambda: point.commit(name, by=by)


def _import_report(point: DecisionPoint, today: date) -> None:
    year = today.year - 2
    full_year = days(date(year, 1, 1), date(year, 12, 31))
    journeys = mechanism(["home-zone", "route"], "research", "4.2", name="journeys", time=full_year)
    body = request(f"mobility-report-{year}", "mobility-lab", journeys)
    point.import_past(body, because="published before the ledger began", by="iris.okafor")


def _recent_events(point: DecisionPoint, now: datetime) -> Iterator[_TimedAction]:
    """Yield the latest actions: a denial, a voided and an open reservation, and a proposal."""
    today = now.date()
    recent = days(today - timedelta(days=28), today - timedelta(days=1))
    attributes = ["age-band", "home-zone"]
    map_mechanism = mechanism(attributes, "marketing", "3", name="heat-map", time=recent)
    heat_map = request("home-zone-heat-map", "marketing", map_mechanism)
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


def _round_releases(day: date) -> list[Any]:
    """Return the releases of the round of this year, with the month in their ids."""
    diagnostics = DiagnosticCollector()
    entries = parse_batch(Source("round.yaml", round_text(day)), diagnostics)
    return [_with_month(entry.release.body, day) for entry in entries]


def _with_month(body: Any, day: date) -> dict[str, Any]:
    return {**body, "release": f"{body['release']}-{day:%Y-%m}"}


def _compile(source: str) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", source)])
