"""Decision plans: the records with plans are those without plans, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import MsgspecError
from tests.pdp.builders import GLOBAL, body, mechanism, policy, pure, started
from tests.pdp.state_machine import compiled
from tests.pdp.strategies import BODIES, NOISE, policies, scaled, unstable, with_unit, words

from dpolicy.balances import planned_charge
from dpolicy.balances.balances import Balances, Charge
from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.balances.memo import Memo
from dpolicy.balances.planned_charge import ChargeLayout, PlannedCharge
from dpolicy.balances.rule_grids import NO_GRID
from dpolicy.balances.segments import Segments
from dpolicy.errors import DPolicyError, InvalidValue, ReleaseRejected
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import commands
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.plans import decision_plan, planned_requests, reason_text
from dpolicy.pdp.plans.decision_plan import DecisionPlan
from dpolicy.pdp.plans.planned_requests import PlanMemo, PlannedRequest
from dpolicy.pdp.plans.reason_text import ReasonText
from dpolicy.pdp.plans.record_text import PlannedAnswer
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.planned_release import PlannedRelease
from dpolicy.releases.authors import require_author
from dpolicy.releases.decision import Decision
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

START = datetime(2026, 1, 31, 22, tzinfo=UTC)
EDITS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda now: scaled(now, Fraction(1, 2)),
    lambda now: scaled(now, Fraction(2)),
    lambda now: with_unit(now, "user-month"),
    unstable,
)
ACTIONS = ("submit", "submit", "again", "again", "reserve", "commit", "void", "many", "apply")
#: Mechanisms that read all data: plans decide them.
WHOLE = st.tuples(NOISE, words()).map(
    lambda parts: {"mechanism": parts[0], "unit": "user", **parts[1]}
)
STEP = st.tuples(
    st.sampled_from((*ACTIONS, "wait", "restart")),
    st.one_of(st.lists(WHOLE, min_size=1, max_size=2), BODIES),
    st.integers(0, 30),
    st.booleans(),
)


class NoPlans(PlanMemo):
    """The naive twin: every request is decided without a plan."""

    def plan(self, release: Any, by: str, published: Any) -> PlannedRequest:
        request = require_author(parse_request(release), by)
        return PlannedRequest(request.id, None, request)


class Run:
    """One ledger with a decision point, with or without plans."""

    def __init__(self, *, has_plans: bool) -> None:
        self.store, self.now, self.has_plans = MemoryStore(), START, has_plans
        self.open()

    def open(self) -> None:
        self.point = DecisionPoint(self.store, lambda: self.now)
        if not self.has_plans:
            self.point._submissions.plans = NoPlans()

    def do(self, work: Callable[[DecisionPoint], Any]) -> Any:
        """Return the result or the text of the error."""
        try:
            return work(self.point)
        except DPolicyError as error:
            return str(error)

    def state(self) -> tuple[Any, ...]:
        """Return everything that later decisions depend on, of the writers' state."""
        folded = self.point._journal._writer
        assert folded is not None
        state = folded.state
        state.update_balances()
        groups = [(g.by, g.mechanisms, g.meaning, g.month, g.count) for g in state.charge_groups]
        arrays = (state.balances.finite.tobytes(), state.balances.infinite.tobytes())
        return state.entries, state.open_reservations, state.month, groups, arrays

    def segments(self) -> dict[int, Segments]:
        """Return the segments of each rule that has some; `state` must be read before."""
        folded = self.point._journal._writer
        assert folded is not None
        balances = folded.state.balances
        numbers = np.flatnonzero(balances.grids.grid_by_rule != NO_GRID).tolist()
        return {number: balances.segments_for(number) for number in numbers}


def both(work: Callable[[Run], Any], runs: list[Run]) -> None:
    first, second = (work(run) for run in runs)
    assert plain(first) == plain(second)


def plain(answer: Any) -> Any:
    if isinstance(answer, Decision):
        return answer.as_json()
    if isinstance(answer, list):
        return [plain(item) for item in answer]
    return str(answer) if isinstance(answer, DPolicyError) else answer


def compare(start: dict[str, Any], steps: list[Any]) -> list[Run]:
    """Run the same steps with and without plans; compare answers, records and states."""
    runs = [Run(has_plans=True), Run(has_plans=False)]
    both(lambda run: run.do(lambda p: p.apply(compiled(json.dumps(start)))), runs)
    active: list[dict[str, Any]] = [start]
    asked: list[list[Any]] = []
    for number, step in enumerate(steps):
        take_step(runs, active, asked, number, step)
    assert list(runs[0].store.records_after(0)) == list(runs[1].store.records_after(0))
    both(lambda run: run.do(lambda p: p.void("none", because="opens the writers' state")), runs)
    assert runs[0].state() == runs[1].state()
    assert_same_segments(*(run.segments() for run in runs))
    return runs


def assert_same_segments(first: dict[int, Segments], second: dict[int, Segments]) -> None:
    """Compare the losses of rules at the corners of all cells; the cuts may differ."""
    assert first.keys() == second.keys()
    for number, segments in first.items():
        other = second[number]
        corners = np.hstack([one.to_arrays()["low"] for one in (segments, other)]).T.tolist()
        for corner in corners:
            point = tuple(corner)
            assert segments.amounts_at(point).tolist() == other.amounts_at(point).tolist()


def _built_in(value: Any) -> Any:
    """Return a value of built-in types only; plans are kept by their bytes."""
    if isinstance(value, dict):
        return {key: _built_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_built_in(item) for item in value]
    return float(value) if isinstance(value, Fraction) else value


def take_step(
    runs: list[Run], active: list[dict[str, Any]], asked: list[list[Any]], number: int, step: Any
) -> None:
    """Take one step on both ledgers; `active` are the applied policies, `asked` the contents."""
    action, mechanisms, which, flag = step
    content = asked[which % len(asked)] if action == "again" and asked else _built_in(mechanisms)
    request = {"release": f"r{number}", "mechanisms": content}
    earlier = f"r{which}"
    match action:
        case "submit" | "again":
            asked.append(content)
            both(lambda run: run.do(lambda p: p.submit(deepcopy(request), "ana")), runs)
        case "reserve":
            both(lambda run: run.do(lambda p: p.reserve(deepcopy(request))), runs)
        case "commit":
            both(lambda run: run.do(lambda p: p.commit(earlier)), runs)
        case "void":
            both(lambda run: run.do(lambda p: p.void(earlier, because="unused")), runs)
        case "many":
            several = [{**request, "release": f"r{number}-{n}"} for n in range(3)]
            several.append({**request, "release": earlier})
            both(lambda run: run.do(lambda p: list(p.submit_many(several))), runs)
        case "apply":
            active.append(EDITS[which % len(EDITS)](active[-1]))
            made = compiled(json.dumps(active[-1]))
            names = [c.name for c in runs[0].point.conflicts(made)] if flag else []
            both(lambda run: run.do(lambda p: p.apply(made, accept=names)), runs)
        case "wait":
            for run in runs:
                run.now += timedelta(hours=5 * which)
        case _:
            for run in runs:
                run.open()


SETTINGS = settings(
    max_examples=60,
    deadline=None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@SETTINGS
@given(
    start=policies(),
    profile=st.sampled_from(["classic", "anchored", "gaussian"]),
    steps=st.lists(STEP, min_size=10, max_size=30),
)
def test_records_and_states_are_the_same(
    start: dict[str, Any], profile: str, steps: list[Any]
) -> None:
    compare({**start, "accounting": {**start["accounting"], "profile": profile}}, steps)


def test_plans_decide_repeated_and_new_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    real = DecisionPlan.answer

    def count(self: DecisionPlan, state: LedgerState, release: str) -> PlannedAnswer | None:
        answer = real(self, state, release)
        used.append(release) if answer else None
        return answer

    monkeypatch.setattr(DecisionPlan, "answer", count)
    point = started(GLOBAL.replace("2}}", "9, delta: 1e-6}}"))
    names = [f"r{n}" for n in range(6)]
    contents = [mechanism(kind="gaussian", sigma=30), mechanism(kind="laplace", scale=9)]
    decisions = point.submit_many([body(f"r{n}", contents[n % 2]) for n in range(6)])
    point.submit(pure("p", "0.1"))
    point.reserve(pure("q", "0.1"))
    assert [d.allowed for d in decisions if isinstance(d, Decision)] == 6 * [True]
    assert used == [*names, "p", "q"]
    assert audit_ledger(point._journal.store).findings == ()


# Canaries: each is an error that the comparison must detect.


def a_plan_of_an_older_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DecisionPlan, "is_for", lambda *_: True)


def a_planned_release_is_not_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "dpolicy.pdp.state.charge_groups.SpendingTotals.charge_by_plan",
        lambda self, number, group, *_: self._charged_counts.update({number: group.count}) is None,
    )


def a_used_id_is_planned_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "is_id_used", lambda *_: False)


def a_layout_of_an_older_cut(patch: pytest.MonkeyPatch) -> None:
    def compare_rules_only(self: ChargeLayout, balances: Balances) -> bool:
        return self.layout is balances.grids.layout

    patch.setattr(ChargeLayout, "is_current", compare_rules_only)


def a_layout_of_older_rules(patch: pytest.MonkeyPatch) -> None:
    def compare_cells_only(self: ChargeLayout, balances: Balances) -> bool:
        grids = balances.grids.grids
        return all(part.layout is grids[part.number].segments.layout for part in self.grids)

    patch.setattr(ChargeLayout, "is_current", compare_cells_only)


def a_cell_is_charged_that_lies_only_in_part_in_the_region(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segments, "is_cut_along", lambda *_: True)


def a_rule_gets_no_segments(patch: pytest.MonkeyPatch) -> None:
    real = planned_charge.plan_charge

    def plan_whole(section: EnforcedSection, charge: Charge) -> PlannedCharge | None:
        planned = real(section, charge)
        if planned is not None:
            planned.is_partial = np.zeros_like(planned.is_partial)
        return planned

    patch.setattr(decision_plan, "plan_charge", plan_whole)


def a_denied_release_is_charged(patch: pytest.MonkeyPatch) -> None:
    real = DecisionPlan.planned_release

    def allow(self: DecisionPlan, *arguments: Any, allowed: bool) -> PlannedRelease:
        return real(self, *arguments, allowed=True)

    patch.setattr(DecisionPlan, "planned_release", allow)


def a_denial_names_one_exceeded_rule(patch: pytest.MonkeyPatch) -> None:
    real = ChargeLayout.find_exceeded
    patch.setattr(ChargeLayout, "find_exceeded", lambda *about: real(*about)[:1])


def the_limits_of_other_rules(patch: pytest.MonkeyPatch) -> None:
    class OneKey(Memo[Any, Any]):
        def get_or_compute(self, key: Any, compute: Callable[[Any], Any]) -> Any:
            return super().get_or_compute(0, compute)

    real = planned_charge.plan_charge

    def plan_with_first_limits(section: EnforcedSection, charge: Charge) -> PlannedCharge | None:
        if not isinstance(section.rule_limits, OneKey):
            object.__setattr__(section, "rule_limits", OneKey(1))
        return real(section, charge)

    patch.setattr(decision_plan, "plan_charge", plan_with_first_limits)


def a_stated_delta_is_displayed_as_none(patch: pytest.MonkeyPatch) -> None:
    real = ReasonText.with_plain_numbers

    def ignore_delta(self: ReasonText, at: str, before: int, after: int, _delta: int) -> Any:
        return real(self, at, before, after, 0)

    patch.setattr(ReasonText, "with_plain_numbers", ignore_delta)


def a_long_number_is_displayed_as_its_nearest_float(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reason_text, "MAX_EXACT_QUANTA", 2**62)


def a_root_is_displayed_as_its_square(patch: pytest.MonkeyPatch) -> None:
    real = reason_text._describe_rule_text

    def describe(section: EnforcedSection, number: int, *, holds: bool) -> Any:
        text = real(section, number, holds=holds)
        start = reason_text.loss_json(text.formatter, 0, 0).removesuffix("0.0}")
        return text._replace(loss_start=start)

    patch.setattr(reason_text, "_describe_rule_text", describe)


CANARIES = (
    the_limits_of_other_rules,
    a_stated_delta_is_displayed_as_none,
    a_long_number_is_displayed_as_its_nearest_float,
    a_root_is_displayed_as_its_square,
    a_plan_of_an_older_policy,
    a_planned_release_is_not_charged,
    a_used_id_is_planned_again,
    a_layout_of_an_older_cut,
    a_layout_of_older_rules,
    a_cell_is_charged_that_lies_only_in_part_in_the_region,
    a_rule_gets_no_segments,
    a_denied_release_is_charged,
    a_denial_names_one_exceeded_rule,
)


def _rule(name: str, when: str, unit: str, epsilon: float) -> dict[str, Any]:
    named = {"name": name, "kind": "custom", "when": when, "unit": unit}
    return {**named, "budget": {"epsilon": epsilon}}


SIMPLE = {
    "dpolicy": 1,
    "accounting": {"delta": 1e-5},
    "units": {"user": {}, "user-month": {"period": "month"}},
    "schema": {
        "attributes": {"a": {"risk": "low"}, "b": {"risk": "low"}, "c": {"risk": "low"}},
        "labels": {"stage": {"values": ["final", "tuning"]}},
        "partitions": {"country": {"values": ["AT", "CH", "DE"]}},
    },
    "policies": [
        _rule("p", "always", "user", 12),
        _rule("q", '"b" in attributes', "user", 11),
        _rule("m", "always", "user-month", 60),
        {**_rule("g", '"a" in attributes', "user", 0), "budget": {"mu": 5_000}},
        _rule("e", '"c" in attributes && labels["stage"] == "final"', "user", 9),
    ],
}
FIRST = {"mechanism": {"kind": "declared", "epsilon": 0.1}, "unit": "user"}
SECOND = {"mechanism": {"kind": "gaussian", "sigma": 20}, "unit": "user"}
AT, CH, WEST = (
    {**FIRST, "where": {"country": countries}} for countries in ("AT", "CH", ["AT", "CH"])
)
JANUARY = {**AT, "attributes": ["b"], "time": {"from": "2026-01-05", "to": "2026-01-09"}}
HUGE = {**WEST, "attributes": ["b"], "mechanism": {"kind": "declared", "epsilon": 9}}
DELTA = {**FIRST, "mechanism": {"kind": "declared", "epsilon": 0.1, "delta": 1e-7}}
ROOT = {**FIRST, "attributes": ["a"], "mechanism": {"kind": "gaussian", "sigma": 3}}
LONG = {**FIRST, "attributes": ["a"], "mechanism": {"kind": "gaussian", "sigma": 0.0021}}
FAILED = {**FIRST, "attributes": ["c"]}
#: Repeated contents, a policy change, a used id, and another month.
WHOLE_HISTORY = [
    ("submit", [FIRST], 0, False),
    ("again", [FIRST], 0, False),
    ("many", [SECOND], 0, False),
    ("apply", [FIRST], 1, True),
    ("again", [FIRST], 0, False),
    ("reserve", [SECOND], 0, False),
    ("wait", [FIRST], 10, False),
    ("again", [FIRST], 0, False),
    ("again", [FIRST], 0, False),
]
#: Parts of the partition, new cuts between repeated contents, rules that join a grid, denials.
PLACES = (WEST, WEST, CH, WEST, HUGE, HUGE, JANUARY, WEST, CH, JANUARY, AT, WEST, FIRST, HUGE)
HISTORY = [
    *WHOLE_HISTORY,
    *(("many", [place], 0, False) for place in PLACES),
    ("again", [FIRST], 0, False),
    *(("many", [content], 0, False) for content in (LONG, ROOT, DELTA, FAILED)),
]


#: Cells of a rule with different losses, and a release that exceeds the rule in all of them.
DENIALS = [
    *(("many", [{**SECOND, "attributes": ["b"], "where": {"country": "AT"}}], 0, False),) * 3,
    ("many", [{**SECOND, "attributes": ["b"], "where": {"country": ["AT", "CH"]}}], 0, False),
    ("many", [{**HUGE, "where": {"country": ["CH", "AT"]}}], 0, False),
    ("many", [{**SECOND, "mechanism": {"kind": "gaussian", "sigma": 0.2}}], 0, False),
]


def _at(country: Any, **noise: Any) -> list[Any]:
    place = {"where": {"country": country}, "unit": "user", "attributes": ["b"]}
    return [{**place, "mechanism": noise}]


#: Gaussians, whose ε is that of the reserves before and after. Then cells in which the order of the
#: sums is not that of the losses: a stated ρ has no reserve, and a Gaussian has one.
RESERVED = [
    *(("many", [{**SECOND, "mechanism": {"kind": "gaussian", "sigma": 9}}], 0, False),) * 3,
    ("submit", _at("AT", kind="declared", rho=0.5), 0, False),
    ("submit", _at("CH", kind="gaussian", sigma=0.99), 0, False),
    ("many", _at(["AT", "CH"], kind="gaussian", sigma=0.5), 0, False),
]


def with_profile(profile: str) -> dict[str, Any]:
    return {**SIMPLE, "accounting": {"delta": 1e-5, "profile": profile}}


@pytest.mark.parametrize("profile", ["classic", "anchored", "gaussian"])
def test_a_fixed_history_gives_the_same_records(profile: str) -> None:
    records = list(compare(with_profile(profile), HISTORY + DENIALS)[0].store.records_after(0))
    assert len(records) == 85
    compare(with_profile(profile), RESERVED)


@pytest.mark.parametrize("profile", ["classic", "anchored", "gaussian"])
def test_plans_decide_repeated_places_and_denials(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[str] = []
    real = commands.decide_release

    def count(log: Any, release: Any, by: str, **more: Any) -> Decision:
        slow.append(release.id)
        return real(log, release, by, **more)

    monkeypatch.setattr(commands, "decide_release", count)
    point = DecisionPoint(MemoryStore())
    point.apply(compiled(json.dumps(with_profile(profile))))
    decisions = point.submit_many(
        [
            {"release": f"r{number}-{n}", "mechanisms": [place]}
            for number, place in enumerate(PLACES)
            for n in range(3)
        ]
    )
    allowed = [isinstance(one, Decision) and one.allowed for one in decisions]
    denied = [n // 3 for n, is_allowed in enumerate(allowed) if not is_allowed]
    assert denied == [4, 4, 5, 5, 5, 13, 13, 13]
    assert slow == ["r0-0", "r4-0"]  # a rule gets segments by its first charge to a place
    assert audit_ledger(point._journal.store).findings == ()


@pytest.mark.parametrize("mistake", CANARIES, ids=lambda mistake: mistake.__name__)
def test_the_comparison_detects(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Exception) as raised:
        compare(SIMPLE, HISTORY)
        compare(with_profile("classic"), HISTORY)
    assert isinstance(raised.value, AssertionError | DPolicyError | LookupError), raised.value


def replace_reserves(patch: pytest.MonkeyPatch, replace: Callable[[Any], Any]) -> None:
    real = reason_text._describe_rule_text

    def describe(section: EnforcedSection, number: int, *, holds: bool) -> Any:
        text = real(section, number, holds=holds)
        return text if text.reserves is None else text._replace(reserves=replace(text.reserves))

    patch.setattr(reason_text, "_describe_rule_text", describe)


def reserves_are_not_displayed(patch: pytest.MonkeyPatch) -> None:
    replace_reserves(patch, lambda _: None)


def the_loss_before_is_displayed_without_reserves(patch: pytest.MonkeyPatch) -> None:
    class After:
        def __init__(self, real: Any) -> None:
            self.real = real

        def lower_both(self, rule: Any) -> tuple[int, int]:
            return rule[2], self.real.lower_both(rule)[1]

    replace_reserves(patch, After)


def a_rule_is_named_at_its_first_cell(patch: pytest.MonkeyPatch) -> None:
    def take_first(self: DecisionPlan, exceeded: Any) -> Any:
        return list({rule[1]: rule for rule in reversed(exceeded)}.values())[::-1]

    patch.setattr(DecisionPlan, "_at_largest_cells", take_first)


def a_rule_is_named_at_its_cell_with_the_largest_sum(patch: pytest.MonkeyPatch) -> None:
    def take_largest_sum(self: DecisionPlan, exceeded: Any) -> Any:
        largest: dict[int, Any] = {}
        for rule in exceeded:
            if rule[1] not in largest or rule[3] > largest[rule[1]][3]:
                largest[rule[1]] = rule
        return list(largest.values())

    patch.setattr(DecisionPlan, "_at_largest_cells", take_largest_sum)


@pytest.mark.parametrize(
    "mistake",
    (
        reserves_are_not_displayed,
        the_loss_before_is_displayed_without_reserves,
        a_rule_is_named_at_its_first_cell,
        a_rule_is_named_at_its_cell_with_the_largest_sum,
    ),
    ids=lambda mistake: mistake.__name__,
)
@pytest.mark.parametrize("profile", ["anchored", "gaussian"])
def test_the_comparison_detects_with_reserves(
    profile: str,
    mistake: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        compare(with_profile(profile), RESERVED)
        compare(with_profile(profile), HISTORY + DENIALS)


def decide_with_a_policy_of_odd_name() -> None:
    """Compare records whose reasons have quotes and backslashes in their texts."""
    runs = [Run(has_plans=True), Run(has_plans=False)]
    made = compile_policy([Source('C:\\new "main".json', json.dumps(SIMPLE))])
    both(lambda run: run.do(lambda p: p.apply(made)), runs)
    contents = (FIRST, WEST, WEST, FIRST, HUGE, HUGE, HUGE)
    requests = [{"release": f"r{n}", "mechanisms": [one]} for n, one in enumerate(contents)]

    def submit_all(point: DecisionPoint) -> list[Decision]:
        return [point.submit(request) for request in requests]

    both(lambda run: run.do(submit_all), runs)
    assert list(runs[0].store.records_after(0)) == list(runs[1].store.records_after(0))


def test_texts_may_have_quotes_and_backslashes() -> None:
    decide_with_a_policy_of_odd_name()


def test_the_comparison_detects_a_text_of_which_only_quotes_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def escape_quotes(text: str) -> str:
        return text.replace('"', '\\"')

    monkeypatch.setattr(reason_text, "nest_text", escape_quotes)
    with pytest.raises((AssertionError, DPolicyError, MsgspecError)):
        decide_with_a_policy_of_odd_name()


def declared(name: str, epsilon: Any) -> dict[str, Any]:
    """Return a release of built-in values, whose plan is kept."""
    noise = {"kind": "declared", "epsilon": epsilon}
    fields = {"mechanism": noise, "unit": "user", "attributes": ["zip"]}
    return {"release": name, "mechanisms": [fields]}


def plan_while_the_caller_changes_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller changes a mapping after its key was read; a later request has the old content."""
    point = started()
    changed = declared("a", 1)
    copy_content = planned_requests._copy_content

    def change_and_copy(release: Any, key: Any) -> Any:
        changed["mechanisms"] = declared("a", 0.5)["mechanisms"]
        return copy_content(release, key)

    with monkeypatch.context() as patch:
        patch.setattr(planned_requests, "_copy_content", change_and_copy)
        point.submit(changed)
    (reason,) = point.submit(declared("b", 1)).reasons
    assert reason.cost["epsilon"] == 1


def test_a_content_has_its_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_while_the_caller_changes_the_release(monkeypatch)


def test_a_plan_of_what_the_caller_holds_would_be_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: without a copy, the plan of another content has the key of this one."""
    monkeypatch.setattr(planned_requests, "_copy_content", lambda release, _key: release)
    with pytest.raises(AssertionError):
        plan_while_the_caller_changes_the_release(monkeypatch)


def test_a_plan_of_bytes_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canary: the bytes of a NumPy number are no number, and two numbers may share them."""
    monkeypatch.setattr(planned_requests, "_has_bytes", lambda _value: False)
    with pytest.raises((AssertionError, DPolicyError)):
        test_numpy_numbers_with_equal_bytes_have_their_own_plans()


@pytest.mark.parametrize("unusual", [{"labels": {}}, {"attributes": []}, {"name": 7}])
def test_a_content_that_only_the_strict_reader_reads_has_a_plan(unusual: dict[str, Any]) -> None:
    point = started()
    for name in ("a", "b", "c"):
        request = declared(name, 0.1)
        request["mechanisms"][0] |= unusual
        assert point.submit(request).allowed
    assert len(point._submissions.plans._plans) == 1


@pytest.mark.parametrize(
    "value", [np.float64(0.5), np.float32(0.5), np.array(0.5), np.array([0.5])[0]], ids=repr
)
def test_numpy_numbers_are_numbers(value: Any) -> None:
    point = started()
    for name in ("a", "b"):
        (reason,) = point.submit(declared(name, value)).reasons
        assert reason.cost["epsilon"] == 0.5
    (later,) = point.submit(declared("c", np.int64(1))).reasons
    assert later.cost["epsilon"] == 1


def test_numpy_numbers_with_equal_bytes_have_their_own_plans() -> None:
    """Both numbers have the same two bytes."""
    point = started()
    assert point.submit(declared("a", np.float16(0.5))).allowed
    (other,) = np.frombuffer(np.float16(0.5).tobytes(), np.int16)
    decision = point.submit(declared("b", other))
    assert not decision.allowed
    assert decision.reasons[0].cost["epsilon"] == other == 14336


@pytest.mark.parametrize("by", [True, 1, None, ["ana"], {}, b"ana", np.str_("ana")], ids=repr)
def test_an_author_is_a_text(by: Any) -> None:
    """A record with another author could not be read again."""
    store = MemoryStore()
    point = started(store=store)
    candidate = policy(GLOBAL)
    calls = (
        lambda: point.submit(declared("a", 1), by=by),
        lambda: point.submit(parse_request(declared("a", 1)), by=by),
        lambda: point.reserve(declared("a", 1), by=by),
        lambda: point.import_past(declared("a", 1), by=by),
        lambda: point.import_past(declared("a", 1), because=by),
        lambda: point.import_many([declared("a", 1)], by=by),
        lambda: point.propose(declared("a", 1), by=by),
        lambda: point.apply(candidate, by=by),
    )
    for call in calls:
        with pytest.raises(InvalidValue, match="give a text"):
            call()
    (refused,) = point.submit_many([declared("a", 1)], by=by)
    assert isinstance(refused, InvalidValue)
    assert DecisionPoint(store).head.sequence == 1


def test_a_plan_a_check_and_a_record_print_the_same() -> None:
    """JSON of the ledger has sorted keys; a text has δ after ε."""
    point = started()
    for name, epsilon in (("fits", 1), ("large", 5)):
        request = declared(name, epsilon)
        texts = [repr(point.check(request).reasons), repr(point.submit(request).reasons)]
        texts.append(repr(point.submit(request).reasons))
        assert len(set(texts)) == 1, texts
        assert "of ε 2, δ 1e-07" in texts[0]


@pytest.mark.parametrize("kind", ["mapping", "iterator", "text", "nothing"])
def test_many_releases_are_a_list(kind: str) -> None:
    one = declared("a", 1)
    releases: Any = {"mapping": one, "iterator": iter([one]), "text": "a"}.get(kind)
    point = started()
    for call in (point.submit_many, point.import_many):
        with pytest.raises(InvalidValue, match="give a list"):
            call(releases)


def test_an_import_names_every_release_that_is_rejected() -> None:
    point = started()
    many = [declared(name, 1) for name in ("good", "bad", "worse")]
    for release in many[1:]:
        release["mechanisms"][0]["unit"] = "person"
    with pytest.raises(ReleaseRejected) as caught:
        point.import_many(many)
    assert [problem.message.split(":")[0] for problem in caught.value.problems] == [
        "`bad`",
        "`worse`",
    ]
    assert point.head.sequence == 1
