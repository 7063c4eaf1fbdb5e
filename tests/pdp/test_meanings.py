"""A record keeps its meaning: no later policy changes what an earlier release is charged for.

Each case of F1 left something to the policy that decided it. Before records kept their meaning, the
second policy read the release by its own defaults and charged too little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dpolicy import DecisionPoint
from dpolicy.errors import OperationRejected, PolicyConflicts, ReleaseRejected
from dpolicy.integrations.ledger_export import csv_lines, registry_entries
from dpolicy.ledger.canonical import decode_canonical
from dpolicy.ledger.chain import Record
from dpolicy.ledger.events import (
    Event,
    PolicyApplied,
    ReleaseDecided,
    ReleaseImported,
    ReleaseRelabelled,
    from_bytes,
    next_record,
)
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.policy_changes.impact import replay_under_policy
from dpolicy.pdp.rule_status import RuleStatus
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.releases.redefinition import Redefinition
from dpolicy.releases.release_parser import release_from_plain
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

JANUARY = {"from": "2026-01-01", "to": "2026-01-31"}


def policy(
    units: str = "user: {}",
    rule: str = "when: always, unit: user, budget: {rho: 1}",
    labels: str = "",
    partitions: str = "",
    accounting: str = "",
) -> CompiledPolicy:
    """Compile a policy with one rule."""
    text = f"""
dpolicy: 1
accounting: {{delta: 1e-7{accounting}}}
units: {{{units}}}
schema: {{labels: {{{labels}}}, partitions: {{{partitions}}}}}
policies:
  - {{name: rule, kind: custom, {rule}}}
  - {{name: everything, kind: custom, when: always, unit: {units.split(":")[0]}, budget: unlimited}}
"""
    return compile_policy([Source("policy.yaml", text)])


def gaussian(release: str = "a", **more: Any) -> dict[str, Any]:
    """Return a release with ρ = 0.5."""
    return {
        "release": release,
        "mechanisms": [{"mechanism": {"kind": "gaussian", "sigma": 1}, **more}],
    }


def charged(point: DecisionPoint, rule: str = "rule") -> float | None:
    """Return the ρ that a rule is charged."""
    (status,) = [s for s in point.budgets() if s.rule.name == rule]
    return status.spent["rho"]


def conflicts_of(point: DecisionPoint, candidate: CompiledPolicy) -> dict[str, Any]:
    """Apply a policy; return its conflicts by name, with the releases or the spent ρ."""
    with pytest.raises(PolicyConflicts) as raised:
        point.apply(candidate)
    return {
        c.name: c.releases if isinstance(c, Redefinition) else c.spent["rho"]
        for c in raised.value.conflicts
        if isinstance(c, Redefinition | RuleStatus)
    }


# F1: what was left out, and what the second policy would have made of it


DAY = "user-day: {period: day}"
DAILY = "when: always, unit: user-day, budget: {rho: 1000}"


def test_a_unit_that_was_left_out_is_the_unit_of_its_own_time() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    assert point.submit(gaussian(time=JANUARY)).allowed
    later = policy(f"{DAY}, user: {{}}")
    assert conflicts_of(point, later) == {"rule": 480.5}


def test_a_relation_that_was_left_out_is_the_relation_of_its_own_time() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy())
    assert point.submit(gaussian()).allowed
    assert conflicts_of(point, policy(accounting=", relation: change")) == {"rule": 2.0}


LABEL = "deployment: {values: [standard, box], default: %s}"
STANDARD = "when: 'labels.deployment == \"standard\"', unit: user, budget: {rho: 1}"


def test_a_default_label_is_the_default_of_its_own_time() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule=STANDARD, labels=LABEL % "standard"))
    assert point.submit(gaussian()).allowed
    point.apply(policy(rule=STANDARD, labels=LABEL % "box"))
    assert charged(point) == 0.5
    assert point.submit(gaussian("b")).allowed  # its default is `box`
    assert charged(point) == 0.5


def test_a_redefined_unit_is_a_conflict_and_is_charged_by_group_privacy() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    assert point.submit(gaussian(time=JANUARY)).allowed
    monthly = policy("user-day: {period: month}", DAILY)
    assert conflicts_of(point, monthly) == {"unit user-day": ("a",)}
    point.apply(monthly, accept=["unit user-day"])
    assert charged(point) == 480.5
    assert point.submit(gaussian("b", time=JANUARY)).allowed
    assert charged(point) == 481
    point.apply(policy("user-day: {period: month}", DAILY.replace("1000", "2000")))
    assert audit_ledger(point._journal.store).findings == ()


def test_a_redefined_restated_unit_keeps_its_own_statement() -> None:
    units = f"{DAY}, user-month: {{period: month}}"
    point = DecisionPoint(":memory:")
    point.apply(policy(units, DAILY.replace("user-day", "user-month")))
    release = gaussian(unit="user-day", time=JANUARY, also={"user-month": {"sensitivity": 2}})
    assert point.submit(release).allowed
    assert charged(point) == 2
    yearly = policy(f"{DAY}, user-month: {{period: year}}", DAILY.replace("user-day", "user-month"))
    point.apply(yearly, accept=["unit user-month"])
    assert charged(point) == 2  # one month of data, restated for a month, in one year


# Labels and partitions


def test_a_removed_value_of_a_label_is_a_conflict_and_may_match_every_rule() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule=STANDARD, labels=LABEL % "standard"))
    assert point.submit(gaussian()).allowed
    renamed = policy(
        rule="when: 'labels.deployment == \"std\"', unit: user, budget: {rho: 1}",
        labels="deployment: {values: [std, box], default: std}",
    )
    assert conflicts_of(point, renamed) == {"label deployment": ("a",)}
    point.apply(renamed, accept=["label deployment"])
    assert charged(point) == 0.5
    assert audit_ledger(point._journal.store).findings == ()


@pytest.mark.parametrize(
    "test", ['labels.stage == "final"', "!has(labels.stage)", "has(labels.stage)"]
)
def test_a_label_that_came_later_may_have_any_value(test: str) -> None:
    """No default of the new label applies, so every rule that reads it may be charged."""
    point = DecisionPoint(":memory:")
    point.apply(policy())
    assert point.submit(gaussian()).allowed
    later = policy(
        rule=f"when: '{test}', unit: user, budget: {{rho: 1}}",
        labels="stage: {values: [final, tuning], default: tuning}",
    )
    point.apply(later)
    assert charged(point) == 0.5


COUNTRY = "country: {%s, of: user}"
BY_COUNTRY = "when: always, unit: user, budget: {rho: 0.6}"


@pytest.mark.parametrize(
    "redefined",
    [
        "country: {values: [AT, DE], of: user}",
        "country: {from: 0, to: 9, of: user}",
        "country: {values: [AT, CH], of: household}",
    ],
)
def test_a_redefined_partition_is_a_conflict_and_counts_for_all_values(redefined: str) -> None:
    units = "user: {}, household: {covers: [user]}"
    point = DecisionPoint(":memory:")
    point.apply(policy(units, BY_COUNTRY, partitions=COUNTRY % "values: [AT, CH]"))
    assert point.submit(gaussian("a", unit="user", where={"country": ["CH"]})).allowed
    assert point.submit(gaussian("b", unit="user", where={"country": ["AT"]})).allowed
    candidate = policy(units, BY_COUNTRY, partitions=redefined)
    conflicts = conflicts_of(point, candidate)
    assert "partition country" in conflicts
    names = list(conflicts)
    point.apply(candidate, accept=names)
    assert charged(point) == 1  # the release on CH counts for AT too


def test_a_new_value_of_a_partition_is_no_redefinition() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule=BY_COUNTRY, partitions=COUNTRY % "values: [AT, CH]"))
    assert point.submit(gaussian(where={"country": ["CH"]})).allowed
    point.apply(policy(rule=BY_COUNTRY, partitions=COUNTRY % "values: [FR, AT, CH]"))
    assert point.submit(gaussian("b", where={"country": ["FR"]})).allowed


def test_a_partition_that_becomes_an_attribute_counts_as_read() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(partitions=COUNTRY % "values: [AT, CH]"))
    assert point.submit(gaussian(where={"country": ["CH"]})).allowed
    text = """
dpolicy: 1
accounting: {delta: 1e-7}
schema:
  attributes: {country: {risk: high}}
  partitions: {country: {values: [AT, CH], of: user}}
policies:
  - {name: rule, kind: custom, when: '"country" in attributes', unit: user, budget: {rho: 1}}
"""
    point.apply(compile_policy([Source("policy.yaml", text)]))
    assert charged(point) == 0.5


# Required units


def test_a_mechanism_must_state_its_unit_if_there_are_two() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(f"user: {{}}, {DAY}"))
    with pytest.raises(ReleaseRejected, match=r"R001.*`unit` is required"):
        point.submit(gaussian())
    assert point.submit(gaussian(unit="user")).allowed


# Records of format 1 and 2


def without_meanings(records: Iterable[Record]) -> list[Record]:
    """Return the records as version 0.2 wrote them: without meanings and without defaults."""
    old: list[Record] = []
    for record in records:
        event = from_bytes(record.payload)
        match event:
            case PolicyApplied():
                event = replace(event, defaults=None)
            case ReleaseDecided() | ReleaseImported():
                event = replace(event, meaning=None)
        old.append(next_record(old[-1] if old else None, event))
    return old


def reopened(point: DecisionPoint) -> DecisionPoint:
    """Return a decision point on a ledger of format 1 with the same events."""
    return DecisionPoint(MemoryStore(without_meanings(point.records())))


def test_a_record_of_format_1_is_completed_by_the_policy_of_its_own_time() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    assert point.submit(gaussian(time=JANUARY)).allowed
    point.import_past(gaussian("past", time=JANUARY))
    old = reopened(point)
    assert {decode_canonical(r.payload)["format"] for r in old.records()} == {Fraction(1)}
    assert conflicts_of(old, policy(f"{DAY}, user: {{}}")) == {"rule": 961}
    assert audit_ledger(old._journal.store).findings == ()


def test_a_record_of_format_1_without_a_unit_was_stated_for_the_user() -> None:
    """Version 0.2 read it so, and a record keeps its meaning."""
    two_units = policy(f"user: {{}}, {DAY}")
    point = DecisionPoint(":memory:")
    point.apply(two_units)
    assert point.submit(gaussian(unit="user")).allowed
    records = without_meanings(point.records())
    decided = from_bytes(records[1].payload)
    assert isinstance(decided, ReleaseDecided)
    left_out: Event = replace(decided, body=gaussian())
    old = DecisionPoint(MemoryStore([records[0], next_record(records[0], left_out)]))
    assert charged(old) == 0.5
    assert audit_ledger(old._journal.store).findings == ()
    old.apply(policy(f"{DAY}, user: {{}}", "when: always, unit: user, budget: {rho: 2}"))
    assert charged(old) == 0.5


def test_a_release_before_the_first_policy_is_completed_by_it() -> None:
    point = DecisionPoint(":memory:")
    point.import_past(gaussian(time=JANUARY))
    point.apply(policy(DAY, DAILY))
    assert charged(point) == 0.5
    assert conflicts_of(point, policy(f"{DAY}, user: {{}}")) == {"rule": 480.5}


def test_a_release_before_the_first_policy_that_it_cannot_complete_is_unbounded() -> None:
    point = DecisionPoint(":memory:")
    point.import_past(gaussian())
    assert conflicts_of(point, policy(f"user: {{}}, {DAY}")) == {"rule": None}


# What a record keeps


def test_a_record_states_its_complete_meaning() -> None:
    point = DecisionPoint(":memory:")
    point.apply(
        policy(
            "user: {}, user-span: {period: 30 days from 2026-01-05, of: user}",
            labels="stage: {values: [final, tuning], default: final}, team: {text: true}",
            partitions=COUNTRY % "values: [AT, CH]",
        )
    )
    release = gaussian(
        unit="user-span", where={"country": ["CH"]}, also={"user": {"sensitivity": 3}}
    )
    point.submit(release)
    event = point.find_release("a")[1]
    assert isinstance(event, ReleaseDecided)
    assert json.loads(event.meaning or "") == {
        "calendar": "gregorian",
        "units": {
            "user": {"entity": "user"},
            "user-span": {"entity": "user", "period": "30 days from 2026-01-05"},
        },
        "partitions": {"country": {"kind": "values", "stable": True, "of": ["user"]}},
        "mechanisms": [
            {
                "unit": "user-span",
                "relation": "add-remove",
                "attributes": [],
                "labels": {"stage": "final", "team": None},
            }
        ],
    }


def test_a_changed_meaning_is_reported_by_the_audit() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule=STANDARD, labels=LABEL % "standard"))
    point.submit(gaussian())
    first, second = point.records()
    event = from_bytes(second.payload)
    assert isinstance(event, ReleaseDecided)
    forged = replace(event, meaning=(event.meaning or "").replace("standard", "box"))
    report = audit_ledger(MemoryStore([first, next_record(first, forged)]))
    assert ["another meaning" in finding.problem for finding in report.findings] == [True]


def test_exports_state_the_recorded_meaning() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    point.submit(gaussian(time=JANUARY))
    point.apply(policy(f"user: {{}}, {DAY}", DAILY))
    (entry,) = registry_entries(point, None, ("acme", "Industry"))
    assert "privacy_unit: user-day" in entry
    assert '"unit":"user-day"' in entry
    assert "user-day" in list(csv_lines(point))[1]


# Relabelling

TEAM = "team: {values: [ads, maps], default: ads}"


def relabelled(**more: Any) -> DecisionPoint:
    """Return a decision point with the release `a` of ρ 0.5."""
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY, labels=TEAM))
    assert point.submit({**gaussian(time=JANUARY, **more), "by": "ana"}).allowed
    return point


def correction(by: str = "ana", **more: Any) -> dict[str, Any]:
    """Return a correction of the release `a`."""
    return {**gaussian(time=JANUARY, **more), "by": by}


def test_relabelling_keeps_the_author() -> None:
    """G1: alice → bob would free the budget of alice."""
    with pytest.raises(OperationRejected, match="must keep `by`"):
        relabelled().relabel(correction(by="bob"), because="a mistake")


def test_one_person_may_raise_a_charge() -> None:
    """A unit that was left out can be corrected to a smaller one."""
    point = relabelled()
    point.apply(policy(f"{DAY}, user: {{}}", "when: always, unit: user, budget: unlimited", TEAM))
    point.import_past({**gaussian("b", unit="user", time=JANUARY), "by": "ana"})
    assert charged(point) == 481
    point.relabel(correction(unit="user-day"), because="it was user-day")
    assert charged(point) == 481
    assert audit_ledger(point._journal.store).findings == ()


def test_lowering_a_charge_needs_a_second_person() -> None:
    point = relabelled()
    lower = correction(labels={"team": "maps"})
    with pytest.raises(OperationRejected, match="second person") as raised:
        point.relabel(lower, because="a mistake", by="ana")
    assert raised.value.code == "second-person"
    proposal = point.propose_relabelling(lower, because="a mistake", by="ana")
    with pytest.raises(OperationRejected, match="another person"):
        point.approve(proposal.number, by="ana")
    point.approve(proposal.number, by="otto")
    assert point.meaning(point.entries["a"]).mechanisms[0].labels == {"team": "maps"}  # type: ignore[union-attr]
    assert audit_ledger(point._journal.store).findings == ()


def test_a_lowered_charge_without_an_approval_is_a_finding() -> None:
    point = relabelled()
    proposal = point.propose_relabelling(correction(labels={"team": "maps"}), "x", "ana")
    point.approve(proposal.number, by="otto")
    events = [from_bytes(record.payload) for record in point.records()]
    records: list[Record] = []
    for event in (events[0], events[1], events[-1]):
        records.append(next_record(records[-1] if records else None, event))
    (finding,) = audit_ledger(MemoryStore(records)).findings
    assert "without a second person" in finding.problem


def test_a_stated_unit_cannot_be_replaced() -> None:
    point = relabelled(unit="user-day")
    with pytest.raises(OperationRejected, match="must keep the mechanisms"):
        point.relabel(correction(unit="user"), because="cheaper")


def test_a_correction_that_leaves_the_unit_out_again_is_refused() -> None:
    point = relabelled(unit="user-day")
    with pytest.raises(OperationRejected, match="must keep the mechanisms"):
        point.relabel(correction(), because="cheaper")


def test_a_replay_reads_the_recorded_unit() -> None:
    """A candidate with two units would refuse the request, but its record states the unit."""
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    assert point.submit(gaussian(time=JANUARY)).allowed
    candidate = policy(f"{DAY}, user: {{}}", DAILY)
    for ledger in (point, reopened(point)):
        impact = replay_under_policy(candidate, ledger.records())
        assert (impact.replayed, impact.denied, impact.unreadable) == (1, (), ())


# Acts after a policy change


def daily_then(*later: CompiledPolicy) -> DecisionPoint:
    """Return a decision point on which `a` is reserved for a user-day; then policies change."""
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    assert point.reserve(gaussian(time=JANUARY)).allowed
    for candidate in later:
        point.apply(candidate)
    return point


USER_ONLY = policy(rule="when: always, unit: user, budget: {rho: 1000}")


def test_a_commit_of_the_same_body_keeps_the_meaning_of_the_reservation() -> None:
    point = daily_then(USER_ONLY)
    assert charged(point) == 480.5
    point.commit("a", used=gaussian(time=JANUARY))
    assert charged(point) == 480.5
    assert audit_ledger(point._journal.store).findings == ()


def test_a_commit_that_the_active_policy_reads_otherwise_is_refused() -> None:
    point = daily_then(USER_ONLY)
    less = gaussian(time=JANUARY)
    less["mechanisms"][0]["mechanism"]["sigma"] = 2
    with pytest.raises(OperationRejected, match="reads the used release otherwise"):
        point.commit("a", used=less)
    point.commit("a")
    assert charged(point) == 480.5


def test_a_unit_cannot_be_corrected_alone_under_add_remove() -> None:
    """No rule of the active policy is about users, but a later policy has one."""
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    point.submit(gaussian(time=JANUARY))
    point.apply(policy(f"{DAY}, user: {{}}", DAILY))
    with pytest.raises(OperationRejected, match="may lower a charge"):
        point.relabel(gaussian(unit="user", time=JANUARY), because="left out")


def test_a_smaller_unit_can_be_stated_alone_under_change() -> None:
    change = ", relation: change"
    unlimited = "when: always, unit: user, budget: {rho: 1000}"
    point = DecisionPoint(":memory:")
    point.apply(policy(accounting=change, rule=unlimited))
    assert point.submit(gaussian(time=JANUARY)).allowed
    point.apply(policy(f"user: {{}}, {DAY}", unlimited, accounting=change))
    point.relabel(gaussian(unit="user-day", time=JANUARY), because="it was stated for a day")
    assert charged(point) == 480.5
    assert audit_ledger(point._journal.store).findings == ()


def test_a_proposal_keeps_the_meaning_that_it_had() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(DAY, DAILY))
    waiting = point.propose(gaussian(time=JANUARY), by="ana")
    assert isinstance(waiting, Proposal)
    point.apply(USER_ONLY)
    with pytest.raises(OperationRejected, match="otherwise than when it was proposed"):
        point.approve(waiting.number, by="otto")
    point.apply(policy(DAY, DAILY))
    assert point.approve(waiting.number, by="otto")


LEFT_OUT = """
dpolicy: 1
accounting: {delta: 1e-7}
schema: {labels: {m: {values: [x, y]}}}
policies:
  - {name: y, kind: custom, when: 'labels.m == "y"', unit: user, budget: {rho: 1}}
  - {name: stated, kind: custom, when: 'has(labels.m)', unit: user, budget: {rho: 1}}
  - {name: left-out, kind: custom, when: '!has(labels.m)', unit: user, budget: {rho: 9}}
  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 9}}
"""


@pytest.mark.parametrize("removed", ["none", "name: stated"])
def test_a_pruned_rule_that_may_match_is_charged_through_its_witness(removed: str) -> None:
    """`stated` implies `y`, but not for a release whose label is left out."""
    text = "\n".join(line for line in LEFT_OUT.splitlines() if removed not in line)
    point = DecisionPoint(":memory:")
    point.apply(compile_policy([Source("policy.yaml", text)]))
    noise = {"kind": "gaussian", "sigma": 0.75}
    point.import_past({"release": "a", "mechanisms": [{"mechanism": noise}]})
    labelled = {"mechanism": noise, "labels": {"m": "y"}}
    assert not point.submit({"release": "b", "mechanisms": [labelled]}).allowed


# Damaged and forged records


@pytest.mark.parametrize(
    "forge",
    [
        lambda event: replace(event, meaning=None),
        lambda event: replace(event, meaning=(event.meaning or "").replace('"user"', "3")),
        lambda event: replace(event, meaning=(event.meaning or "").replace("[]", "[1]")),
        lambda event: replace(event, meaning='{"calendar":"gregorian"}'),
    ],
)
def test_a_damaged_meaning_is_a_finding(forge: Any) -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(labels=TEAM))
    point.submit(gaussian())
    first, second = point.records()
    forged = next_record(first, forge(from_bytes(second.payload)))
    assert audit_ledger(MemoryStore([first, forged])).findings


def test_a_meaning_must_define_all_names_of_the_release() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(f"user: {{}}, {DAY}"))
    point.submit(gaussian(unit="user-day", also={"user": {"sensitivity": 2}}, time=JANUARY))
    first, second = point.records()
    event = from_bytes(second.payload)
    assert isinstance(event, ReleaseDecided)
    plain = json.loads(event.meaning or "")
    del plain["units"]["user"]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    forged = next_record(first, replace(event, meaning=text))
    findings = audit_ledger(MemoryStore([first, forged])).findings
    assert findings and all("meaning" in finding.problem for finding in findings)


def test_a_record_of_an_older_format_after_a_newer_one_is_a_finding() -> None:
    point = relabelled()
    records = list(point.records())
    body = correction(labels={"team": "maps"})
    old: Event = ReleaseRelabelled("2026-11-18T00:00:00+00:00", "eve", "x", "a", body)
    report = audit_ledger(MemoryStore([*records, next_record(records[-1], old)]))
    assert any("older format" in finding.problem for finding in report.findings)


def test_a_batch_fills_the_author() -> None:
    point = DecisionPoint(":memory:")
    point.apply(policy(rule="when: 'by == \"alice\"', unit: user, budget: {rho: 1}"))
    release = release_from_plain(gaussian())
    point.submit_batch(lambda state: [release], by="alice")
    assert charged(point) == 0.5
