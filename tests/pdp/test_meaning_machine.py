"""Policy changes mixed with releases: every charge is that of the recorded meanings.

The machine changes units, relations, labels, defaults and partitions between releases, and compares
every rule with a model that stores meanings (`tests/reference/meanings.py`).
"""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.pdp.test_meanings import without_meanings
from tests.reference.meanings import DAYS, Definitions, MeaningModel

from dpolicy import DecisionPoint
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.completion import Reading
from dpolicy.decisions.resolution import resolve_or_reject
from dpolicy.errors import PolicyConflicts, ReleaseRejected
from dpolicy.ledger.canonical import decode_canonical
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.state import charge_groups
from dpolicy.pdp.state.charge_groups import ChargeGroup, Resolution
from dpolicy.releases.body import release_from_body
from dpolicy.releases.redefinition import Redefinition
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

UNITS = (
    (("user", None),),
    (("user", None), ("user-span", "day")),
    (("user", None), ("user-span", "week")),
    (("user-span", "month"), ("user", None)),
)
DEFINITIONS = st.builds(
    Definitions,
    units=st.sampled_from(UNITS),
    relation=st.sampled_from(("add-remove", "change")),
    stages=st.sampled_from((("final", "tuning"), ("final", "tuning", "draft"), ("done", "tuning"))),
    default=st.sampled_from((None, "tuning")),
    countries=st.sampled_from((("AT", "CH"), ("AT", "CH", "DE"), ("CH", "DE"))),
    stable=st.booleans(),
)


def compiled(definitions: Definitions) -> CompiledPolicy:
    """Compile the policy of some definitions."""
    return compile_policy([Source("policy.yaml", definitions.text())])


class MeaningMachine(RuleBasedStateMachine):
    """A decision point and the model, with the same releases and policies."""

    @initialize(definitions=DEFINITIONS)
    def start(self, definitions: Definitions) -> None:
        self.point = DecisionPoint(":memory:")
        self.point.apply(compiled(definitions))
        self.model = MeaningModel(definitions)
        self.count = 0

    @rule(
        unit=st.sampled_from((None, "user", "user-span")),
        relation=st.sampled_from((None, None, "add-remove", "change")),
        stage=st.sampled_from((None, None, "final", "tuning", "draft", "done")),
        countries=st.sampled_from((None, ("CH",), ("AT",), ("CH", "DE"))),
        day=st.sampled_from(DAYS),
        imported=st.booleans(),
    )
    def submit(
        self,
        unit: str | None,
        relation: str | None,
        stage: str | None,
        countries: tuple[str, ...] | None,
        day: date | None,
        imported: bool,
    ) -> None:
        self.count += 1
        release = f"r{self.count}"
        fields: dict[str, Any] = {"mechanism": {"kind": "gaussian", "sigma": 1}}
        fields |= {} if unit is None else {"unit": unit}
        fields |= {} if relation is None else {"relation": relation}
        fields |= {} if stage is None else {"labels": {"stage": stage}}
        fields |= {} if countries is None else {"where": {"country": list(countries)}}
        fields |= {} if day is None else {"time": {"from": str(day), "to": str(day)}}
        body = {"release": release, "mechanisms": [fields]}
        now = self.model.now
        is_readable = (
            (unit in dict(now.units) or (unit is None and len(now.units) == 1))
            and (stage is None or stage in now.stages)
            and set(countries or ()) <= set(now.countries)
        )
        try:
            is_charged = (
                bool(self.point.import_past(body))
                if imported
                else (self.point.submit(body).allowed)
            )
        except ReleaseRejected:
            assert not is_readable
            return
        assert is_readable
        if is_charged:
            self.model.record(release, unit, relation, stage, countries, day)

    @rule(definitions=DEFINITIONS)
    def apply(self, definitions: Definitions) -> None:
        expected = self.model.conflicts(definitions)
        policy = compiled(definitions)
        conflicts = self.point.conflicts(policy)
        redefined = {c.name for c in conflicts if isinstance(c, Redefinition)}
        assert redefined == expected
        if conflicts:
            try:
                self.point.apply(policy)
                raise AssertionError("a conflict was not refused")
            except PolicyConflicts:
                pass
        self.point.apply(policy, accept=[conflict.name for conflict in conflicts])
        self.model.now = definitions

    @rule()
    def reopen(self) -> None:
        self.point = DecisionPoint(MemoryStore(list(self.point.records())))

    @invariant()
    def charges_are_those_of_the_recorded_meanings(self) -> None:
        if hasattr(self, "point"):
            for status in self.point.budgets():
                spent = status.spent["rho"]
                expected = self.model.charge(status.rule.name, status.rule.unit)
                assert (math.inf if spent is None else spent) == expected
                if status.rule.name == "every user":
                    assert expected >= self.model.recorded_loss("user")

    def teardown(self) -> None:
        """The audit has no findings, and a ledger of format 1 with the same events agrees."""
        if not hasattr(self, "point"):
            return
        assert audit_ledger(self.point._journal.store).findings == ()
        old = DecisionPoint(MemoryStore(without_meanings(self.point.records())))
        assert [s.spent for s in old.budgets()] == [s.spent for s in self.point.budgets()]


TestMeanings = MeaningMachine.TestCase
TestMeanings.settings = settings(max_examples=60, stateful_step_count=14, deadline=None)


def test_the_machine_catches_a_reading_by_the_active_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The canary charges past releases by the defaults and definitions of the active policy."""

    def read_by_active_policy(
        enforced: EnforcedPolicy, group: ChargeGroup, _: object
    ) -> Resolution:
        mechanisms = decode_canonical(group.mechanisms)
        release = release_from_body({"release": "", "by": group.by, "mechanisms": mechanisms})
        return resolve_or_reject(release, enforced, Reading.LEGACY)

    monkeypatch.setattr(charge_groups, "_resolve_mechanisms", read_by_active_policy)
    many = settings(
        max_examples=100,
        stateful_step_count=8,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(MeaningMachine, settings=many)
