"""Sample requests of Marlow Mobility: one year of releases of its teams.

All names and numbers are fictional. The same day and seed give the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from random import Random
from typing import Any

CITIES = ("Aldbrook", "Marlow", "Penhaven", "Sudbury")
#: Studies of the university, with their attributes.
STUDIES = (
    ("commute-lengths", ("home-zone", "trips")),
    ("night-journeys", ("route", "age-band")),
    ("school-runs", ("home-zone", "age-band")),
    ("transfer-times", ("stations", "route")),
    ("event-crowds", ("stations", "trips")),
)
CAMPAIGNS = ("spring", "summer-pass", "students", "weekend", "airport", "family-card")


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Release body with its time; a `reserved` one is committed later."""

    at: datetime
    body: dict[str, Any]
    reserved: bool = False


def generate_year(last: date, seed: int = 7) -> list[SampleRequest]:
    """Generate one year of requests up to the day before `last`, sorted by time."""
    rng = Random(seed)
    year = [last - timedelta(days=back) for back in range(365, 0, -1)]
    requests = (request for day in year for request in _requests_on(day, rng))
    return sorted(requests, key=lambda request: request.at)


def mechanism(
    attributes: Sequence[str], purpose: str, sigma: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a mechanism body for riders: a Gaussian sum, or the `mechanism` in `fields`."""
    noise = {"kind": "gaussian", "sigma": Fraction(sigma)} if sigma else fields.pop("mechanism")
    labels = {"purpose": [purpose], **fields.pop("labels", {})}
    body: dict[str, Any] = {"mechanism": noise, "unit": "rider", "attributes": sorted(attributes)}
    if sigma:
        body["additive"] = True
    return {**body, "labels": labels, **fields}


def training_mechanism(noise: str, rate: str, steps: int) -> dict[str, Any]:
    """Return a DP-SGD mechanism."""
    return {
        "kind": "dp-sgd",
        "noise-multiplier": Fraction(noise),
        "sampling-rate": Fraction(rate),
        "steps": Fraction(steps),
    }


def request(release: str, by: str, *mechanisms: dict[str, Any]) -> dict[str, Any]:
    """Return a release body."""
    return {"release": release, "by": by, "mechanisms": list(mechanisms)}


def utc_time(day: date, hour: int, minute: int = 0) -> datetime:
    """Return a time of a day in UTC."""
    return datetime.combine(day, time(hour, minute), UTC)


def _requests_on(day: date, rng: Random) -> Iterator[SampleRequest]:
    """Yield the requests of a day: periodic reports, and studies at random."""
    yield SampleRequest(utc_time(day, 5), _app_health(day))
    if day.weekday() == 0:
        yield SampleRequest(utc_time(day, 7, 30), _ridership(day))
    if day.day == 3:
        yield SampleRequest(utc_time(day, 8), _station_flows(day))
        yield SampleRequest(utc_time(day, 15, 20), _campaign(day))
    if day.day == 9 and day.month % 3 == 1:
        yield SampleRequest(utc_time(day, 9), _fares(day))
        yield SampleRequest(utc_time(day, 11, 10), _access(day))
    if day.day == 17 and day.month % 2 == 0:
        yield SampleRequest(utc_time(day, 16), _arrival_model(day), reserved=True)
    if rng.random() < 0.075:
        yield SampleRequest(
            utc_time(day, 10 + rng.randrange(7), rng.randrange(60)), _study(day, rng)
        )


def days(first: date, last: date) -> dict[str, str]:
    """Return the range of days whose data a mechanism reads."""
    return {"from": first.isoformat(), "to": last.isoformat()}


def _previous_months(day: date, months: int) -> dict[str, str]:
    """Return the days of the last complete months before a day."""
    last = day.replace(day=1) - timedelta(days=1)
    first = last
    for _ in range(months - 1):
        first = first.replace(day=1) - timedelta(days=1)
    return days(first.replace(day=1), last)


def _app_health(day: date) -> dict[str, Any]:
    count = mechanism(["trips"], "product", "44", time=days(day, day))
    return request(f"app-health-{day}", "operations", count)


def _ridership(day: date) -> dict[str, Any]:
    monday = day - timedelta(days=7)
    week = days(monday, day - timedelta(days=1))
    ridership = mechanism(["trips"], "planning", "17", name="ridership", time=week)
    return request(f"ridership-{monday:%G-W%V}", "operations", ridership)


def _station_flows(day: date) -> dict[str, Any]:
    month = _previous_months(day, 1)
    mechanisms = [
        mechanism(["stations", "trips"], "planning", "8", name="flows", time=month),
        mechanism(["stations"], "planning", "16", name="transfers", time=month),
    ]
    return request(f"station-flows-{month['from'][:7]}", "city-planning", *mechanisms)


def _campaign(day: date) -> dict[str, Any]:
    name = CAMPAIGNS[day.month % len(CAMPAIGNS)]
    attributes = ["age-band", "trips"]
    segments = mechanism(
        attributes, "marketing", "12", name="segments", time=_previous_months(day, 1)
    )
    return request(f"campaign-{name}-{day.year}-{day.month:02}", "marketing", segments)


def _fares(day: date) -> dict[str, Any]:
    quarter = _previous_months(day, 3)
    fares = mechanism(["card-type", "fare"], "planning", "5.5", name="fares", time=quarter)
    return request(f"fare-report-{_quarter_name(quarter)}", "finance", fares)


def _access(day: date) -> dict[str, Any]:
    quarter = _previous_months(day, 3)
    access = mechanism(["stations", "step-free"], "planning", "8", name="step-free", time=quarter)
    return request(f"step-free-access-{_quarter_name(quarter)}", "accessibility", access)


def _quarter_name(quarter: dict[str, str]) -> str:
    return f"{quarter['to'][:4]}-Q{int(quarter['to'][5:7]) // 3}"


def _arrival_model(day: date) -> dict[str, Any]:
    model = mechanism(
        ["route", "stations"],
        "product",
        mechanism=training_mechanism("1.8", "0.002", 2000),
        labels={"deployment": "black-box"},
        name="model",
        time=_previous_months(day, 2),
    )
    return request(f"arrival-model-{day:%Y-%m}", "ml-platform", model)


def _study(day: date, rng: Random) -> dict[str, Any]:
    name, attributes = rng.choice(STUDIES)
    cities = sorted(rng.sample(CITIES, rng.choice((1, 1, 2))))
    study = mechanism(
        attributes,
        "research",
        rng.choice(("5.5", "6.5", "8")),
        name=name,
        where=[{"city": cities}],
        time=_previous_months(day, 1),
    )
    return request(f"{name}-{day:%Y-%m-%d}", "mobility-lab", study)
