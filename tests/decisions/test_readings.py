"""Statements with two readings: dpolicy refuses them, or takes the reading that costs more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pdp.builders import body, mechanism

from dpolicy.allocation.round import allocate
from dpolicy.cli.main import exit_code
from dpolicy.client.wire import submit_call
from dpolicy.decisions.release_totals import total_costs
from dpolicy.decisions.resolution import complete_or_none
from dpolicy.errors import OperationRejected, PolicyRejected, ReleaseRejected
from dpolicy.ledger.events import PolicyApplied, ReleaseDecided, next_record
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.decision import Decision
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source


def compile_units(units: str, unit: str, more: str = "", **options: Any) -> CompiledPolicy:
    """Compile a policy with these units and one rule of ε 1 on one of them."""
    text = (
        f"dpolicy: 1\naccounting: {{delta: 1e-7}}\nunits: {{{units}}}\n{more}policies:\n"
        f"  - {{name: g, kind: custom, when: always, unit: {unit}, budget: {{epsilon: 1}}}}\n"
    )
    return compile_policy([Source("policy.yaml", text)], **options)


def find_entity(units: str, unit: str) -> str:
    """Return the entity of a unit."""
    return compile_units(units, unit).units[unit].entity


# F2: the entity of a unit


@pytest.mark.parametrize(
    "units",
    [
        "user-day: {period: day}, household-month: {period: month}",
        "user: {}, user-day: {period: day}, household-month: {period: month}",
        "household-month: {period: month}",
        "person: {}, household-month: {period: month}",
    ],
)
def test_a_unit_named_after_an_unknown_entity_is_an_error(units: str) -> None:
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units(units, "household-month")
    assert "add a unit `household`, or state `of`" in str(rejected.value)


@pytest.mark.parametrize("name", ("household_month", "household month", "household/month"))
def test_every_separator_ends_the_name_of_the_entity(name: str) -> None:
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units(f"user: {{}}, {name}: {{period: month}}", name)
    assert "add a unit `household`, or state `of`" in str(rejected.value)
    assert find_entity(f"household: {{}}, {name}: {{period: month}}", name) == "household"


def test_a_unit_without_a_period_has_no_other_entity() -> None:
    """`user: {of: household}` does not mean that a user is a household."""
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units("household: {}, user: {of: household}", "household")
    assert "add `covers: [user]` to `household`" in str(rejected.value)
    assert find_entity("user: {of: user}", "user") == "user"


def test_a_user_day_beside_other_entities_needs_the_unit_user() -> None:
    with pytest.raises(PolicyRejected, match="P018") as rejected:
        compile_units("household: {}, user-day: {period: day}", "user-day")
    assert "add a unit `user`, or state `of` with one of `household`" in str(rejected.value)


@pytest.mark.parametrize(
    ("units", "unit", "entity"),
    [
        ("user-day: {period: day}", "user-day", "user"),
        ("user-day: {period: day}, user-sunday-week: {period: week}", "user-sunday-week", "user"),
        ("household: {}, household-month: {period: month}", "household-month", "household"),
        ("user: {}, weekly-slice: {period: week, of: user}", "weekly-slice", "user"),
        ("slice: {period: day}", "slice", "user"),
        ("rider: {}, slice: {period: day}", "slice", "rider"),
    ],
)
def test_the_entity_is_stated_or_in_the_name(units: str, unit: str, entity: str) -> None:
    assert find_entity(units, unit) == entity


def test_a_ledger_opens_although_its_policy_has_an_error_of_a_newer_version() -> None:
    """Older versions read `household-month` as a month of a user; now its loss is unbounded."""
    units = "user-day: {period: day}, household-month: {period: month}"
    policy = compile_units(units, "household-month", tolerated={"P018"})
    sources = tuple((source.name, source.text) for source in policy.sources)
    applied = PolicyApplied("2026-01-01T00:00:00+00:00", "", "", policy.digest, sources, ())
    point = DecisionPoint(MemoryStore([next_record(None, applied)]))
    release = body("r", {**mechanism(epsilon="0.5"), "unit": "user-day"})
    assert not point.check(release).allowed


# F4: a `many` label without a value


PURPOSE = (
    "schema:\n  labels: {purpose: {values: [research, product], many: true}}\n"
    "policies:\n"
    "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 9}}\n"
    "  - {name: product, kind: custom, unit: user, budget: {epsilon: 1}, when: WHEN}\n"
)


def start_with_purpose(when: str) -> DecisionPoint:
    """Return a decision point with a rule of ε 1 on the purposes of a release."""
    text = f"dpolicy: 1\naccounting: {{delta: 1e-7}}\n{PURPOSE.replace('WHEN', repr(when))}"
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy([Source("policy.yaml", text)]))
    return point


@pytest.mark.parametrize("labels", [{}, {"labels": {"purpose": []}}])
@pytest.mark.parametrize(
    "when",
    [
        '"product" in labels.purpose',
        "size(labels.purpose) > 1",
        'labels.purpose.exists(p, p == "product")',
        'labels.purpose.all(p, p == "product")',
        'labels.purpose.exists_one(p, p == "product")',
    ],
)
def test_a_many_label_without_a_value_fails_like_any_other_label(
    when: str, labels: dict[str, Any]
) -> None:
    decision = start_with_purpose(when).submit(body("r", {**mechanism(epsilon="5"), **labels}))
    assert not decision.allowed
    (error,) = decision.predicate_errors
    assert error.endswith("the label `purpose` is missing")


@pytest.mark.parametrize(
    ("purpose", "allowed"), [([], True), (["research"], True), (["product"], False)]
)
def test_has_tests_for_a_many_label_first(purpose: list[str], allowed: bool) -> None:
    point = start_with_purpose('has(labels.purpose) && "product" in labels.purpose')
    release = body("r", {**mechanism(epsilon="5"), "labels": {"purpose": purpose}})
    assert point.submit(release).allowed is allowed


def test_a_past_release_without_a_purpose_is_charged_to_every_rule() -> None:
    point = start_with_purpose('"product" in labels.purpose')
    point.import_past(body("r", mechanism(epsilon="0.5")))
    spent = {status.rule.name: status.spent["epsilon"] for status in point.budgets()}
    assert spent == {"all": 0.5, "product": 0.5}


def test_quantifiers_over_an_empty_list_do_not_read_a_missing_label() -> None:
    point = start_with_purpose("attributes.exists(a, labels.purpose.exists(p, p == a))")
    assert point.submit(body("r", mechanism(epsilon="5"))).allowed


# F3: the author as an argument


ALICE = (
    "dpolicy: 1\naccounting: {delta: 1e-7}\npolicies:\n"
    "  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 9}}\n"
    "  - {name: alice, kind: custom, unit: user, budget: {epsilon: 1}, when: 'by == \"alice\"'}\n"
)


def start_with_alice(store: MemoryStore | None = None) -> DecisionPoint:
    """Return a decision point with a rule of ε 1 on the releases by alice."""
    point = DecisionPoint(store or MemoryStore())
    point.apply(compile_policy([Source("policy.yaml", ALICE)]))
    return point


def unit_release(release: str, **more: Any) -> dict[str, Any]:
    """Return a release of ε 1."""
    return {**body(release, mechanism(epsilon="1")), **more}


@pytest.mark.parametrize("method", ["submit", "reserve"])
def test_rules_and_records_have_the_author_of_the_request(method: str) -> None:
    point = start_with_alice()
    first = getattr(point, method)(unit_release("a"), by="alice")
    assert first.allowed and not point.check(unit_release("b"), by="alice").allowed
    second = getattr(point, method)(unit_release("b"), by="alice")
    assert second.exceeded_rules == ("alice",)
    event: Any = point.find_release("a")[1]
    assert event.body["by"] == "alice"
    assert getattr(point, method)(unit_release("a"), by="alice") == replace(first, replayed=True)


@pytest.mark.parametrize("method", ["submit", "reserve", "check"])
def test_the_author_of_the_request_must_equal_the_stated_author(method: str) -> None:
    point = start_with_alice()
    with pytest.raises(ReleaseRejected, match="R009") as rejected:
        getattr(point, method)(unit_release("a", by="bob"), by="alice")
    assert "`bob`" in str(rejected.value) and "`alice`" in str(rejected.value)
    assert not point.entries and not point.proposals


def test_a_proposal_has_the_author_of_the_request() -> None:
    point = start_with_alice()
    point.submit(unit_release("a"), by="alice")
    proposal = point.propose(unit_release("b"), by="alice")
    assert isinstance(proposal, Proposal)
    assert point.propose(unit_release("b"), by="alice") == proposal
    decision = point.approve(proposal.number, by="bob")
    assert isinstance(decision, Decision) and decision.exceeded_rules == ("alice",)


def test_an_import_and_a_round_fill_the_author_and_keep_a_stated_one() -> None:
    point = start_with_alice()
    point.import_past(unit_release("past"), by="alice")
    point.import_past(unit_release("other", by="bob"), by="alice")
    events: list[Any] = [point.find_release(name)[1] for name in ("past", "other")]
    assert [event.body["by"] for event in events] == ["alice", "bob"]
    assert point.import_past(unit_release("past"), by="alice") == 2
    result = allocate(point, [unit_release("new"), unit_release("more", by="bob")], by="alice")
    assert [decision.release for decision in result.decisions] == ["more"]


def test_a_used_release_has_the_author_of_its_reservation() -> None:
    point = start_with_alice()
    point.reserve(unit_release("a"), by="alice")
    used = body("a", mechanism(epsilon="0.75"))
    with pytest.raises(ReleaseRejected, match="R009"):
        point.commit("a", {**used, "by": "bob"})
    point.commit("a", used)
    spent = {status.rule.name: status.spent["epsilon"] for status in point.budgets()}
    assert spent == {"all": 0.75, "alice": 0.75}


def test_a_release_of_an_older_version_is_replayed() -> None:
    """Before version 0.3 the author was recorded beside the body, not in it."""
    store = MemoryStore()
    point = start_with_alice(store)
    old = DecisionPoint(MemoryStore())
    old.apply(compile_policy([Source("policy.yaml", ALICE)]))
    decision = old.submit(unit_release("a"))
    event = old.find_release("a")[1]
    assert isinstance(event, ReleaseDecided) and "by" not in event.body
    with store.open_for_writing() as log:
        log.append([next_record(list(store.records_after(0))[-1], replace(event, by="alice"))])
    again = DecisionPoint(store)
    for by in ("alice", ""):
        assert again.submit(unit_release("a"), by=by) == replace(decision, replayed=True)
    with pytest.raises(OperationRejected, match="another release"):
        point.submit(unit_release("a"), by="bob")


def test_a_client_does_not_replace_a_stated_author() -> None:
    with pytest.raises(ReleaseRejected, match="R009"):
        submit_call(unit_release("a", by="bob"), "alice", reserve=False)
    assert b'"by":"alice"' in (submit_call(unit_release("a"), "alice", reserve=True).body or b"")


# F6 and F7: relations


RESPONSES = [{"kind": "randomized-response", "truth": "0.75"}]
RESPONSES += [{"kind": "randomized-response", "values": "4", "noise": "0.5"}]
TRAININGS = [
    {"kind": "dp-sgd", "noise-multiplier": "1", "sampling-rate": "1", "steps": "1"},
    {"kind": "tree-aggregation", "noise-multiplier": "1", "steps": "1"},
]


def start_under(relation: str) -> DecisionPoint:
    """Return a decision point with a rule of ρ 2 under a neighbouring relation."""
    text = (
        f"dpolicy: 1\naccounting: {{relation: {relation}}}\npolicies:\n"
        "  - {name: g, kind: custom, when: always, unit: user, budget: {rho: 2}}\n"
    )
    point = DecisionPoint(MemoryStore())
    point.apply(compile_policy([Source("policy.yaml", text)]))
    return point


def state(fields: dict[str, Any], relation: str | None) -> dict[str, Any]:
    """Return a release of one mechanism with a stated relation, or with none."""
    entry = mechanism(**fields)
    return body("r", entry if relation is None else {**entry, "relation": relation})


@pytest.mark.parametrize("fields", RESPONSES)
@pytest.mark.parametrize(
    ("unit", "stated", "accepted"),
    [
        ("add-remove", None, False),
        ("add-remove", "add-remove", False),
        ("change", "add-remove", False),
        ("add-remove", "change", True),
        ("change", None, True),
        ("replace", None, True),
        ("replace", "replace", True),
    ],
)
def test_randomized_response_needs_a_relation_that_keeps_the_number_of_answers(
    fields: dict[str, str], unit: str, stated: str | None, accepted: bool
) -> None:
    point = start_under(unit)
    if accepted:
        assert point.submit(state(fields, stated)).allowed
        return
    for ask in (point.submit, point.check, point.import_past):
        with pytest.raises(ReleaseRejected, match=r"R010.*state `relation: change` or"):
            ask(state(fields, stated))


@pytest.mark.parametrize("fields", TRAININGS)
@pytest.mark.parametrize("unit", ["change", "replace"])
def test_a_noise_multiplier_needs_a_relation_if_the_unit_has_another(
    fields: dict[str, str], unit: str
) -> None:
    with pytest.raises(ReleaseRejected, match=r"R011.*state `relation: add-remove`"):
        start_under(unit).submit(state(fields, None))
    charged = start_under(unit)
    assert charged.submit(state(fields, "add-remove")).allowed
    assert charged.budgets()[0].spent == {"rho": 2.0}
    stated = start_under(unit)
    assert stated.submit(state(fields, unit)).allowed
    assert stated.budgets()[0].spent == {"rho": 0.5}


@pytest.mark.parametrize("fields", TRAININGS)
def test_a_noise_multiplier_is_stated_for_add_remove(fields: dict[str, str]) -> None:
    point = start_under("add-remove")
    assert point.submit(state(fields, None)).allowed
    assert point.budgets()[0].spent == {"rho": 0.5}


def test_the_command_cost_refuses_the_same_mechanisms(tmp_path: Path) -> None:
    release = tmp_path / "release.yaml"
    release.write_text(
        "release: r\nmechanisms: [{mechanism: {kind: randomized-response, truth: 0.75}}]\n"
    )
    assert exit_code(["cost", str(release)]) == 3
    release.write_text(release.read_text().replace("}}]", "}, relation: change}]"))
    assert exit_code(["cost", str(release)]) == 0


def test_a_registry_total_does_not_count_a_mechanism_that_is_not_private() -> None:
    policy = compile_units("user: {}", "user")
    response = release_from_plain(state(RESPONSES[0], None))
    assert complete_or_none(response, policy) is None
    private = release_from_plain(state(RESPONSES[0], "change"))
    meaning = complete_or_none(private, policy)
    assert meaning is not None and total_costs(private, meaning, policy)


@pytest.mark.parametrize("cutoff", ["1", "1000"])
def test_the_epsilon_of_sparse_vector_queries_is_a_total(cutoff: str) -> None:
    """Noise Lap(2cΔ/ε₂) makes the cost independent of the cutoff c (docs/releases.md)."""
    fields: dict[str, Any] = {"epsilon-threshold": "0.25", "epsilon-queries": "0.5"}
    point = DecisionPoint(MemoryStore())
    point.apply(compile_units("user: {}", "user"))
    point.submit(body("r", mechanism(kind="sparse-vector", cutoff=cutoff, **fields)))
    assert point.budgets()[0].spent["epsilon"] == pytest.approx(0.75)


# F5: the entity of a partition


DAYS = "user: {}, user-day: {period: day}"


def start_with_country(country: str) -> DecisionPoint:
    """Return a decision point with a rule of ε 1 for users and a partition by country."""
    partition = f"schema: {{partitions: {{country: {{values: [CH, DE]{country}}}}}}}\n"
    point = DecisionPoint(MemoryStore())
    point.apply(compile_units(DAYS, "user", partition))
    return point


def daily_release(country: str, day: str) -> dict[str, Any]:
    """Return a release of ε 1 on one day of one country."""
    fields = {"unit": "user-day", "where": {"country": [country]}, "time": {"from": day, "to": day}}
    return body(f"{country}-{day}", {**mechanism(epsilon="1"), **fields})


@pytest.mark.parametrize(
    ("units", "country", "codes"),
    [
        (DAYS, "", ["P107"]),
        (DAYS, ", of: user", []),
        (DAYS, ", stable: false", []),
        ("user-day: {period: day}, user: {}", "", []),  # the rule is on the shortest unit
        ("user-month: {period: month}, user-day: {period: day}", "", ["P107"]),
        ("user: {}", "", []),
        ("user-day: {period: day}", "", []),
        ("user: {}, advertiser: {}", "", ["P107"]),
    ],
)
def test_a_partition_states_its_entity_if_periods_make_it_ambiguous(
    units: str, country: str, codes: list[str]
) -> None:
    partition = f"schema: {{partitions: {{country: {{values: [CH, DE]{country}}}}}}}\n"
    policy = compile_units(units, units.partition(":")[0], partition)
    assert [warning.code for warning in policy.warnings] == codes


def test_a_value_of_a_partition_is_that_of_a_user_for_all_time() -> None:
    """One user has one country, so nobody pays for a day in CH and a day in DE."""
    point = start_with_country(", of: user")
    assert point.submit(daily_release("CH", "2026-10-05")).allowed
    assert point.submit(daily_release("DE", "2026-10-06")).allowed
    assert not point.submit(daily_release("CH", "2026-10-07")).allowed


def test_an_unstable_partition_does_not_split_the_rules_for_users() -> None:
    point = start_with_country(", stable: false")
    assert point.submit(daily_release("CH", "2026-10-05")).allowed
    assert not point.submit(daily_release("DE", "2026-10-06")).allowed
