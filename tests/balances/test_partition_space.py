"""Blocks of the naive model, compared with the calendar, with examples and with the code.

The canaries put errors into the model. The state machine must detect that model and code differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from tests.pdp.strategies import COUNTRIES
from tests.pdp.test_stateful import memory, quick, run
from tests.reference import model as naive
from tests.reference import recorded_release, rule_blocks
from tests.reference import rules as twin
from tests.reference.model import BlockStatus, Model, PastRelease
from tests.reference.rule_blocks import Block, PlacedMechanism
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


#: All blocks that contain the last day of October or one of the first two of November.
WINDOWS = (
    ("10-29", "10-31"),
    ("10-30", "11-01"),
    ("10-31", "11-02"),
    ("11-01", "11-03"),
    ("11-02", "11-04"),
)


def policy(unit: str, rho: float, when: str = "always") -> dict[str, Any]:
    """A policy with one rule."""
    rule = {"name": "it", "kind": "custom", "when": when, "unit": unit, "budget": {"rho": rho}}
    head = {"dpolicy": 1, "accounting": {"delta": 1e-7}, "units": UNITS}
    return {**head, "schema": SCHEMA, "policies": [rule]}


def release(name: str, rho: str, **place: Any) -> dict[str, Any]:
    """A release with one mechanism, stated for a user-day, in a region."""
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
    assert [name for name, _ in rule_blocks.time_blocks(period, some)] == names


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
    policy_set = policy(unit, 1, when)
    [rule] = twin.expand(policy_set, "policies")
    assert [
        name for name in SCHEMA["partitions"] if rule_blocks.can_split(policy_set, rule, name)
    ] == axes


def test_locations_are_in_the_order_of_the_axes() -> None:
    policy_set = policy("user-month", 1)
    [rule] = twin.expand(policy_set, "policies")
    requested = [PlacedMechanism(time=days("2026-10-31", "2026-11-01"))]
    blocks = [
        b
        for b in rule_blocks.blocks(policy_set, rule, requested)
        if rule_blocks.LONG_AGO not in b.days
    ]
    assert len(blocks) == 3 * 3 * 3
    assert blocks[0].location == {"country": "AT", "age": 0, "time": "2026-10"}
    assert blocks[1].location == {"country": "AT", "age": 0, "time": "2026-11"}
    assert blocks[3].location == {"country": "AT", "age": 1, "time": "2026-10"}


def test_time_does_not_split_a_unit_under_replace() -> None:
    policy_set = policy("moved-day", 1)
    [rule] = twin.expand(policy_set, "policies")
    requested = [PlacedMechanism(time=days("2026-10-31", "2026-11-01"))]
    assert [b.location for b in rule_blocks.blocks(policy_set, rule, requested)] == [{}]


def test_static_data_include_the_unnamed_time_before_all_blocks() -> None:
    model = Model(policy("user-day", 0.1))
    [rule] = model.rules("policies")
    requested = (
        naive.resolve_mechanisms(naive.text(model.policy), naive.text(release("d", "0.2"))) or []
    )
    assert model.worst_block(rule, model.exceeded_blocks(rule, requested)).blocks[0].location == {
        "country": "AT",
        "age": 0,
    }


def test_thirty_one_days_fill_one_month() -> None:
    model = Model(policy("user-month", 0.465))
    for day in range(1, 32):
        verdict = model.submit(release(f"d{day}", "0.015", time=days(f"2026-10-{day:02}")))
        assert verdict and verdict.allowed
    for again in ("2026-10-01", "2026-10-31"):
        assert not model.verdict(release("again", "0.001", time=days(again))).allowed
    assert model.verdict(release("november", "0.465", time=days("2026-11-01"))).allowed


def test_the_reported_block_is_the_first_of_the_fullest() -> None:
    model = Model(policy("user-day", 0.1))
    model.import_past(release("a", "0.06", where={"country": ["CH", "DE"]}))
    model.import_past(release("b", "0.05", where={"age": {"from": 1, "to": 2}}))
    model.import_past(release("c", "0.01", time=days("2026-10-31", "2026-11-02")))
    [rule] = model.rules("policies")
    requested = (
        naive.resolve_mechanisms(naive.text(model.policy), naive.text(release("d", "0.01"))) or []
    )
    worst = model.worst_block(rule, model.exceeded_blocks(rule, requested))
    assert worst.blocks[0].location == {"country": "CH", "age": 1, "time": "2026-10-31"}


def test_an_unresolvable_release_is_charged_to_every_block() -> None:
    model = Model(policy("user-day", 100))
    model.releases["old"] = PastRelease(
        "allowed", {}, release("old", "0.1", where={"country": "XX"})
    )
    requested = release("new", "0.001", where={"country": "AT"}, time=days("2026-10-31"))
    assert not model.verdict(requested).allowed


@pytest.mark.parametrize(
    "where",
    [{"country": "XX"}, {"age": {"from": 2, "to": 1}}, {"age": {"from": 0, "to": 3}}, {"zip": "1"}],
)
def test_empty_and_unknown_selections_are_rejected(where: dict[str, Any]) -> None:
    with pytest.raises(naive.Rejected):
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
def test_a_used_release_must_not_touch_more_blocks(where: Any, time: Any, refused: bool) -> None:
    model = Model(policy("user-day", 1))
    place = {"where": {"country": ["AT", "CH"]}, "time": days("2026-10-30", "2026-10-31")}
    reserved = release("a", "0.1", **place)
    meaning = recorded_release.complete(model.policy, reserved)
    model.releases["a"] = PastRelease("reserved", {}, reserved, None, meaning)
    used = release("a", "0.1", where=where, **({} if time is None else {"time": time}))
    try:
        model.end("a", used)
    except naive.Rejected:
        assert refused
    else:
        assert not refused


# Canaries: each is an error that the state machine must detect.


def a_rule_is_split_by_what_it_is_about(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(twin, "reads", lambda texts, attribute: False)


def a_week_across_two_months_pays_the_first(patch: pytest.MonkeyPatch) -> None:
    real = rule_blocks.touches

    def wrong(mechanism: PlacedMechanism, block: Block) -> bool:
        time = mechanism.time
        if time is not None and time.keys() == {"from", "to"} and time["to"][:7] > time["from"][:7]:
            mechanism = replace(mechanism, time={**time, "to": "2026-01-31"})
        return real(mechanism, block)

    patch.setattr(rule_blocks, "touches", wrong)


def an_unstable_partition_splits(patch: pytest.MonkeyPatch) -> None:
    real = rule_blocks.can_split

    def wrong(policy_set: PolicyDict, rule: Rule, name: str) -> bool:
        partitions = {
            n: {**p, "stable": True} for n, p in policy_set["schema"]["partitions"].items()
        }
        return real(
            {**policy_set, "schema": {**policy_set["schema"], "partitions": partitions}}, rule, name
        )

    patch.setattr(rule_blocks, "can_split", wrong)


def an_overlap_is_charged_twice(patch: pytest.MonkeyPatch) -> None:
    real = Model.charged_mechanisms

    def wrong(self: Model, past: PastRelease) -> list[PlacedMechanism]:
        return [
            replace(m, boxes=boxes)
            for m in real(self, past)
            for boxes in ([(box,) for box in m.boxes] if m.boxes else [()])
        ]

    patch.setattr(Model, "charged_mechanisms", wrong)


def static_data_touch_no_day(patch: pytest.MonkeyPatch) -> None:
    real = rule_blocks.touches
    patch.setattr(
        rule_blocks,
        "touches",
        lambda m, block: real(m, block) and (m.unknown or m.time is not None or block.time is None),
    )


def any_broken_place_is_told(patch: pytest.MonkeyPatch) -> None:
    def last(self: Model, rule: Rule, among: list[BlockStatus]) -> BlockStatus:
        return among[-1]

    patch.setattr(Model, "worst_block", last)


CANARIES = (
    a_rule_is_split_by_what_it_is_about,
    a_week_across_two_months_pays_the_first,
    an_unstable_partition_splits,
    an_overlap_is_charged_twice,
    static_data_touch_no_day,
    any_broken_place_is_told,
)


@pytest.mark.parametrize("mistake", CANARIES, ids=lambda mistake: mistake.__name__)
def test_the_machine_detects(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Exception) as raised:
        run(memory, quick(300))
    assert isinstance(raised.value, AssertionError | DPolicyError), raised.value


def test_a_used_release_must_lie_within_the_reservation() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy([Source("p.yaml", json.dumps(policy("user", 9.0)))]))

    def body(*countries: str) -> dict[str, Any]:
        fields = {
            "mechanism": {"kind": "declared", "rho": 1},
            "where": {"country": list(countries)},
        }
        return {"release": "r", "mechanisms": [{**fields, "unit": "user"}]}

    assert point.reserve(body("AT", "CH")).allowed
    for elsewhere in (body("DE"), body("CH", "DE")):
        with pytest.raises(OperationRejected):
            point.commit("r", used=elsewhere)
    point.commit("r", used=body("CH"))
    spent = {c: point.budgets({"country": c})[0].spent["rho"] for c in COUNTRIES}
    assert spent == {"AT": 0.0, "CH": 1.0, "DE": 0.0}
