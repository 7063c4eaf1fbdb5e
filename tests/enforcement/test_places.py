"""The naive places against the calendar and by hand, and mistakes about places that must be found.

The mistakes are made in the model: the machine must tell it from the code whichever is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from tests.enforcement.test_stateful import memory, quick, run
from tests.enforcement.worlds import COUNTRIES
from tests.reference import model as naive
from tests.reference import places
from tests.reference import rules as twin
from tests.reference.model import Model, Past, Standing
from tests.reference.places import Block, Placed
from tests.reference.rules import PolicyDict, Rule

from dpolicy.errors import DPolicyError, OperationRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

UNITS: dict[str, Any] = {
    "user": {},
    "user-day": {"period": "day"},
    "user-month": {"period": "month"},
    "moved": {"relation": "replace"},
    "moved-day": {"period": "day", "relation": "replace"},
    "household": {"covers": ["user"]},
    "household-month": {"period": "month"},
}
SCHEMA: dict[str, Any] = {
    "attributes": {"country": {"risk": "high"}, "views": {"risk": "low"}},
    "labels": {},
    "partitions": {
        "country": {"values": list(COUNTRIES), "of": "user"},
        "age": {"from": 0, "to": 2, "of": "user"},
        "band": {"from": 0, "to": 1, "stable": False},
    },
}


#: All that hold any of the last day of October and the first two of November.
WINDOWS = (
    ("10-29", "10-31"),
    ("10-30", "11-01"),
    ("10-31", "11-02"),
    ("11-01", "11-03"),
    ("11-02", "11-04"),
)


def policy(unit: str, rho: float, when: str = "always") -> dict[str, Any]:
    """One rule."""
    rule = {"name": "it", "kind": "custom", "when": when, "unit": unit, "budget": {"rho": rho}}
    head = {"dpolicy": 1, "accounting": {"delta": 1e-7}, "units": UNITS}
    return {**head, "schema": SCHEMA, "policies": [rule]}


def release(name: str, rho: str, **place: Any) -> dict[str, Any]:
    """One mechanism, stated for a user-day, somewhere."""
    noise = {"kind": "declared", "rho": Fraction(rho)}
    return {"release": name, "mechanisms": [{"mechanism": noise, "unit": "user-day", **place}]}


def days(first: str, last: str = "") -> dict[str, str]:
    return {"from": first, "to": last or first}


@pytest.mark.parametrize(
    ("period", "names"),
    [
        ("day", ["2026-10-31", "2026-11-01", "2026-11-02"]),
        ("week", ["2026-W44", "2026-W45"]),
        ("month", ["2026-10", "2026-11"]),
        ("quarter", ["2026-Q4"]),
        ("year", ["2026"]),
        ("sliding 3 days", [f"2026-{a}/2026-{b}" for a, b in WINDOWS]),
    ],
)
def test_blocks_have_the_names_of_the_calendar(period: str, names: list[str]) -> None:
    some = frozenset(date.fromisoformat(f"2026-{day}") for day in ("10-31", "11-01", "11-02"))
    assert [name for name, _ in places.spans(period, some)] == names


@pytest.mark.parametrize(
    ("unit", "when", "axes"),
    [
        ("user", "always", ["country", "age"]),
        ("user-day", "always", ["country", "age"]),
        ("user", '"country" in attributes', ["age"]),
        ("user", '"views" in attributes', ["country", "age"]),
        ("user", "size(attributes) == 0", ["age"]),
        ("moved", "always", []),
        ("household", "always", []),
        ("household-month", "always", []),
    ],
)
def test_which_partitions_split(unit: str, when: str, axes: list[str]) -> None:
    said = policy(unit, 1, when)
    [rule] = twin.expand(said, "policies")
    assert [name for name in SCHEMA["partitions"] if places.splits(said, rule, name)] == axes


def test_places_come_in_the_order_of_axes() -> None:
    said = policy("user-month", 1)
    [rule] = twin.expand(said, "policies")
    asked = [Placed(time=days("2026-10-31", "2026-11-01"))]
    found = [b for b in places.blocks(said, rule, asked) if places.LONG_AGO not in b.days]
    assert len(found) == 3 * 3 * 3
    assert found[0].place == {"country": "AT", "age": 0, "time": "2026-10"}
    assert found[1].place == {"country": "AT", "age": 0, "time": "2026-11"}
    assert found[3].place == {"country": "AT", "age": 1, "time": "2026-10"}


def test_what_is_replaced_is_not_split_by_time_either() -> None:
    said = policy("moved-day", 1)
    [rule] = twin.expand(said, "policies")
    asked = [Placed(time=days("2026-10-31", "2026-11-01"))]
    assert [b.place for b in places.blocks(said, rule, asked)] == [{}]


def test_static_data_reach_back_to_a_time_without_a_name() -> None:
    model = Model(policy("user-day", 0.1))
    [rule] = model.rules("policies")
    asked = naive.read(naive.text(model.policy), naive.text(release("d", "0.2"))) or []
    assert model.worst(rule, model.broken(rule, asked)).blocks[0].place == {
        "country": "AT",
        "age": 0,
    }


def test_thirty_one_days_are_one_month() -> None:
    model = Model(policy("user-month", 0.465))
    for day in range(1, 32):
        verdict = model.submit(release(f"d{day}", "0.015", time=days(f"2026-10-{day:02}")))
        assert verdict and verdict.allowed
    for again in ("2026-10-01", "2026-10-31"):
        assert not model.verdict(release("again", "0.001", time=days(again))).allowed
    assert model.verdict(release("november", "0.465", time=days("2026-11-01"))).allowed


def test_the_worst_place_is_the_fullest_and_of_these_the_first() -> None:
    model = Model(policy("user-day", 0.1))
    model.import_past(release("a", "0.06", where={"country": ["CH", "DE"]}))
    model.import_past(release("b", "0.05", where={"age": {"from": 1, "to": 2}}))
    model.import_past(release("c", "0.01", time=days("2026-10-31", "2026-11-02")))
    [rule] = model.rules("policies")
    asked = naive.read(naive.text(model.policy), naive.text(release("d", "0.01"))) or []
    worst = model.worst(rule, model.broken(rule, asked))
    assert worst.blocks[0].place == {"country": "CH", "age": 1, "time": "2026-10-31"}


def test_what_cannot_be_read_is_everywhere() -> None:
    model = Model(policy("user-day", 100))
    model.releases["old"] = Past("allowed", {}, release("old", "0.1", where={"country": "XX"}))
    asked = release("new", "0.001", where={"country": "AT"}, time=days("2026-10-31"))
    assert not model.verdict(asked).allowed


@pytest.mark.parametrize(
    "where",
    [{"country": "XX"}, {"age": {"from": 2, "to": 1}}, {"age": {"from": 0, "to": 3}}, {"zip": "1"}],
)
def test_nobody_and_strangers_cannot_be_asked_for(where: dict[str, Any]) -> None:
    with pytest.raises(naive.Refused):
        Model(policy("user", 1)).verdict(release("a", "0.1", where=where))


@pytest.mark.parametrize(
    ("where", "time", "refused"),
    [
        ({"country": "AT"}, days("2026-10-31"), False),
        ({"country": ["AT", "DE"]}, days("2026-10-31"), True),
        ({"country": "AT"}, days("2026-10-31", "2026-11-01"), True),
        ({"country": "AT"}, None, True),
    ],
)
def test_what_was_run_may_not_reach_further(where: Any, time: Any, refused: bool) -> None:
    model = Model(policy("user-day", 1))
    place = {"where": {"country": ["AT", "CH"]}, "time": days("2026-10-30", "2026-10-31")}
    model.releases["a"] = Past("reserved", {}, release("a", "0.1", **place))
    used = release("a", "0.1", where=where, **({} if time is None else {"time": time}))
    try:
        model.end("a", used)
    except naive.Refused:
        assert refused
    else:
        assert not refused


# Canaries: each is a mistake that the machine must find.


def a_rule_is_split_by_what_it_is_about(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(twin, "reads", lambda texts, attribute: False)


def a_week_across_two_months_pays_the_first(patch: pytest.MonkeyPatch) -> None:
    real = places.touches

    def wrong(mechanism: Placed, block: Block) -> bool:
        time = mechanism.time
        if time is not None and time.keys() == {"from", "to"} and time["to"][:7] > time["from"][:7]:
            mechanism = replace(mechanism, time={**time, "to": "2026-01-31"})
        return real(mechanism, block)

    patch.setattr(places, "touches", wrong)


def an_unstable_partition_splits(patch: pytest.MonkeyPatch) -> None:
    real = places.splits

    def wrong(said: PolicyDict, rule: Rule, name: str) -> bool:
        known = {n: {**p, "stable": True} for n, p in said["schema"]["partitions"].items()}
        return real({**said, "schema": {**said["schema"], "partitions": known}}, rule, name)

    patch.setattr(places, "splits", wrong)


def an_overlap_is_charged_twice(patch: pytest.MonkeyPatch) -> None:
    real = Model.charged

    def wrong(self: Model, body: naive.Body) -> list[Placed]:
        return [
            replace(m, boxes=boxes)
            for m in real(self, body)
            for boxes in ([(box,) for box in m.boxes] if m.boxes else [()])
        ]

    patch.setattr(Model, "charged", wrong)


def static_data_touch_no_day(patch: pytest.MonkeyPatch) -> None:
    real = places.touches
    patch.setattr(
        places,
        "touches",
        lambda m, block: real(m, block) and (m.unknown or m.time is not None or block.time is None),
    )


def any_broken_place_is_told(patch: pytest.MonkeyPatch) -> None:
    def last(self: Model, rule: Rule, among: list[Standing]) -> Standing:
        return among[-1]

    patch.setattr(Model, "worst", last)


CANARIES = (
    a_rule_is_split_by_what_it_is_about,
    a_week_across_two_months_pays_the_first,
    an_unstable_partition_splits,
    an_overlap_is_charged_twice,
    static_data_touch_no_day,
    any_broken_place_is_told,
)


@pytest.mark.parametrize("mistake", CANARIES, ids=lambda mistake: mistake.__name__)
def test_the_machine_finds(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Exception) as found:
        run(memory, quick(300))
    assert isinstance(found.value, AssertionError | DPolicyError), found.value


def test_what_was_run_must_lie_within_what_was_reserved() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy([Source("p.yaml", json.dumps(policy("user", 9.0)))]))

    def body(*countries: str) -> dict[str, Any]:
        said = {"mechanism": {"kind": "declared", "rho": 1}, "where": {"country": list(countries)}}
        return {"release": "r", "mechanisms": [{**said, "unit": "user"}]}

    assert point.reserve(body("AT", "CH")).allowed
    for elsewhere in (body("DE"), body("CH", "DE")):
        with pytest.raises(OperationRejected):
            point.commit("r", used=elsewhere)
    point.commit("r", used=body("CH"))
    spent = {c: point.budgets({"country": c})[0].spent["rho"] for c in COUNTRIES}
    assert spent == {"AT": 0.0, "CH": 1.0, "DE": 0.0}
