"""A year and a seed → the releases that the teams of Marlow Mobility asked for, day by day.

Every name and number is made up. The same year and seed give the same releases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from random import Random
from typing import Any

CITIES = ("Aldbrook", "Marlow", "Penhaven", "Sudbury")
#: What the university asks about, and for which attributes.
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
    """One request: when, what, and whether it is run later, under a reservation."""

    at: datetime
    body: dict[str, Any]
    reserved: bool = False


def generate_year(last: date, seed: int = 7) -> list[SampleRequest]:
    """A year of requests up to the day before `last`, in order."""
    chance = Random(seed)
    year = [last - timedelta(days=back) for back in range(365, 0, -1)]
    return sorted((asked for day in year for asked in _day(day, chance)), key=lambda a: a.at)


def mechanism(
    attributes: Sequence[str], purpose: str, sigma: str | None = None, **more: Any
) -> dict[str, Any]:
    """One mechanism for riders: a sum with Gaussian noise, unless it says something else."""
    noise = {"kind": "gaussian", "sigma": Fraction(sigma)} if sigma else more.pop("mechanism")
    labels = {"purpose": [purpose], **more.pop("labels", {})}
    said = {"mechanism": noise, "unit": "rider", "attributes": sorted(attributes)}
    return {**said, **({"additive": True} if sigma else {}), "labels": labels, **more}


def training_mechanism(noise: str, rate: str, steps: int) -> dict[str, Any]:
    """How a model is trained."""
    return {
        "kind": "dp-sgd",
        "noise-multiplier": Fraction(noise),
        "sampling-rate": Fraction(rate),
        "steps": Fraction(steps),
    }


def request(release: str, by: str, *mechanisms: dict[str, Any]) -> dict[str, Any]:
    """A release as plain values."""
    return {"release": release, "by": by, "mechanisms": list(mechanisms)}


def utc_time(day: date, hour: int, minute: int = 0) -> datetime:
    """A time of a day, in UTC."""
    return datetime.combine(day, time(hour, minute), UTC)


def _day(day: date, chance: Random) -> Iterator[SampleRequest]:
    """What is asked for on a day: reports in their rhythm, studies when somebody has an idea."""
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
    if chance.random() < 0.075:
        yield SampleRequest(
            utc_time(day, 10 + chance.randrange(7), chance.randrange(60)), _study(day, chance)
        )


def days(first: date, last: date) -> dict[str, str]:
    """The days whose data is read."""
    return {"from": first.isoformat(), "to": last.isoformat()}


def _before(day: date, months: int) -> dict[str, str]:
    """Whole months, up to the one before a day."""
    last = day.replace(day=1) - timedelta(days=1)
    first = last
    for _ in range(months - 1):
        first = first.replace(day=1) - timedelta(days=1)
    return days(first.replace(day=1), last)


def _app_health(day: date) -> dict[str, Any]:
    said = mechanism(["trips"], "product", "44", time=days(day, day))
    return request(f"app-health-{day}", "operations", said)


def _ridership(day: date) -> dict[str, Any]:
    monday = day - timedelta(days=7)
    week = days(monday, day - timedelta(days=1))
    said = mechanism(["trips"], "planning", "17", name="ridership", time=week)
    return request(f"ridership-{monday:%G-W%V}", "operations", said)


def _station_flows(day: date) -> dict[str, Any]:
    month = _before(day, 1)
    said = [
        mechanism(["stations", "trips"], "planning", "8", name="flows", time=month),
        mechanism(["stations"], "planning", "16", name="transfers", time=month),
    ]
    return request(f"station-flows-{month['from'][:7]}", "city-planning", *said)


def _campaign(day: date) -> dict[str, Any]:
    name = CAMPAIGNS[day.month % len(CAMPAIGNS)]
    asked = ["age-band", "trips"]
    said = mechanism(asked, "marketing", "12", name="segments", time=_before(day, 1))
    return request(f"campaign-{name}-{day.year}-{day.month:02}", "marketing", said)


def _fares(day: date) -> dict[str, Any]:
    quarter = _before(day, 3)
    said = mechanism(["card-type", "fare"], "planning", "5.5", name="fares", time=quarter)
    return request(f"fare-report-{_quarter(quarter)}", "finance", said)


def _access(day: date) -> dict[str, Any]:
    quarter = _before(day, 3)
    said = mechanism(["stations", "step-free"], "planning", "8", name="step-free", time=quarter)
    return request(f"step-free-access-{_quarter(quarter)}", "accessibility", said)


def _quarter(quarter: dict[str, str]) -> str:
    return f"{quarter['to'][:4]}-Q{int(quarter['to'][5:7]) // 3}"


def _arrival_model(day: date) -> dict[str, Any]:
    said = mechanism(
        ["route", "stations"],
        "product",
        mechanism=training_mechanism("1.8", "0.002", 2000),
        labels={"deployment": "black-box"},
        name="model",
        time=_before(day, 2),
    )
    return request(f"arrival-model-{day:%Y-%m}", "ml-platform", said)


def _study(day: date, chance: Random) -> dict[str, Any]:
    name, attributes = chance.choice(STUDIES)
    cities = sorted(chance.sample(CITIES, chance.choice((1, 1, 2))))
    said = mechanism(
        attributes,
        "research",
        chance.choice(("5.5", "6.5", "8")),
        name=name,
        where=[{"city": cities}],
        time=_before(day, 1),
    )
    return request(f"{name}-{day:%Y-%m-%d}", "mobility-lab", said)
