"""Scenario file of a simulation: policy, arriving requests, rounds, cohorts and strategy.

policy: policy.yaml                        # paths are relative to the scenario
requests: [requests.yaml]                  # lists of releases, each with its `round`
rounds: {from: 1, to: 20}
cohorts: {partition: cohort, active: 12}   # left out: users do not rotate
unlocking: {steps: 12, slack: 0.4}         # left out: budgets are fully unlocked
strategy: efficient
timeout: 1                                 # rounds that consider a request before it is dropped
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from dpolicy.allocation.batch_file import BatchEntry, check_unique_ids, load_batch
from dpolicy.allocation.simulation import Arrival, RoundOutcome, RoundSchedule, Seconds, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.unlocking import CohortRotation, UnlockingSchedule
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import OperationRejected, PolicyRejected, ReleaseRejected
from dpolicy.rules.compiler import load_policy
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.shapes import (
    INVALID,
    ChoiceShape,
    ListShape,
    NameShape,
    NumberShape,
    RecordField,
    RecordShape,
    Shape,
    TextShape,
)
from dpolicy.text.source_files import read_source
from dpolicy.text.yaml_reader import read_nodes


@dataclass(frozen=True, slots=True)
class SimulationScenario:
    """Content of a scenario file; relative paths are resolved against its directory."""

    policy: Path
    requests: tuple[Path, ...]
    rounds: range
    schedule: RoundSchedule
    strategy: str


_COUNT = NumberShape("a whole number from 1", least=Fraction(1), whole=True)
_ROUND = NumberShape("the number of a round", least=Fraction(0), whole=True)
_SLACK = NumberShape("a slack from 0 to 1", least=Fraction(0), most=Fraction(1))

_ROUNDS = RecordShape(
    "`rounds`",
    {"from": RecordField(_ROUND, default=Fraction(1)), "to": RecordField(_ROUND, required=True)},
    lambda v, _: range(int(v["from"]), int(v["to"]) + 1),
)
_COHORTS = RecordShape(
    "`cohorts`",
    {
        "partition": RecordField(NameShape(), "a partition with a range", required=True),
        "active": RecordField(
            _COUNT, "number of rounds in which a cohort is active", required=True
        ),
    },
    lambda v, _: CohortRotation(str(v["partition"]), int(v["active"])),
)
_UNLOCKING = RecordShape(
    "`unlocking`",
    {
        "steps": RecordField(
            _COUNT, "number of rounds until the whole budget is unlocked", required=True
        ),
        "slack": RecordField(
            _SLACK, "how much faster the first half is unlocked", default=Fraction(0)
        ),
    },
    lambda v, _: UnlockingSchedule(int(v["steps"]), Fraction(v["slack"])),
)
SCENARIO: Shape = RecordShape(
    "a scenario",
    {
        "policy": RecordField(TextShape("a path"), required=True),
        "requests": RecordField(ListShape(TextShape("a path"), least=1), required=True),
        "rounds": RecordField(_ROUNDS, required=True),
        "cohorts": RecordField(_COHORTS),
        "unlocking": RecordField(_UNLOCKING),
        "strategy": RecordField(ChoiceShape(tuple(STRATEGIES), "a strategy"), default="efficient"),
        "timeout": RecordField(
            _COUNT, "number of rounds that consider a request", default=Fraction(1)
        ),
    },
    lambda values, _: values,
)


def load_scenario(file: Path) -> SimulationScenario:
    """Read a scenario file. Raise `PolicyRejected` with all diagnostics."""
    diagnostics = DiagnosticCollector()
    node = read_nodes(read_source(file), diagnostics.report)
    document: Any = INVALID if node is None else SCENARIO.read(node, diagnostics.report)
    if document is INVALID or diagnostics.errors:
        raise PolicyRejected(diagnostics.sorted_diagnostics)
    if document["unlocking"] is not None and document["cohorts"] is None:
        raise OperationRejected("`unlocking` depends on the age of cohorts; add `cohorts`")
    return SimulationScenario(
        file.parent / str(document["policy"]),
        tuple(file.parent / str(path) for path in document["requests"]),
        document["rounds"],
        RoundSchedule(document["cohorts"], document["unlocking"], int(document["timeout"])),
        str(document["strategy"]),
    )


def simulate_scenario(
    scenario: SimulationScenario,
    seed: int | None = None,
    clock: Seconds = lambda: 0.0,
) -> tuple[Simulation, Iterator[RoundOutcome]]:
    """Return the simulation and an iterator that runs it round by round.

    A seed shuffles the requests of each round.
    """
    policy = load_policy(scenario.policy)
    entries = [entry for path in scenario.requests for entry in load_batch(path)]
    check_unique_ids([entry.release for entry in entries])
    if seed is not None:
        Random(seed).shuffle(entries)
    enforced = enforce(policy)
    arrivals = [_resolve_arrival(entry, enforced, scenario.rounds) for entry in entries]
    strategy = STRATEGIES[scenario.strategy]
    simulation = Simulation(policy, strategy, scenario.schedule, clock)
    return simulation, simulation.run(arrivals, scenario.rounds)


def _resolve_arrival(entry: BatchEntry, enforced: EnforcedPolicy, rounds: range) -> Arrival:
    release = entry.release
    mechanisms, problems = resolve_release(release, enforced)
    if problems:
        raise ReleaseRejected(problems).for_release(release.id)
    utility = 1.0 if release.utility is None else float(release.utility)
    number = rounds.start if entry.round is None else entry.round
    if number not in rounds:
        raise OperationRejected(
            f"`{release.id}` arrives in round {number}, outside the simulated rounds"
        )
    return Arrival(release.id, number, utility, mechanisms)
