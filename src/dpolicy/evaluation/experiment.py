"""Runs of the paper's evaluation: a scenario, a total budget, a system and a strategy.

Every run has a separate process, so that its memory can be measured. For both systems the spending
is measured in the scopes of the scenario's policy; the baseline has a single rule and does not
enforce these scopes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from time import process_time
from typing import Any

from dpolicy.allocation.simulation import Arrival, RoundOutcome, Simulation
from dpolicy.allocation.strategies import STRATEGIES
from dpolicy.allocation.unlocking import CohortRotation
from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.errors import OperationRejected
from dpolicy.evaluation.s3_variants import charge_coarse_blocks, with_timed_share
from dpolicy.evaluation.spending_measures import largest_spending
from dpolicy.evaluation.workload import (
    ROUNDS,
    SCHEDULE,
    Workload,
    bundled_workload,
    policy_for_workload,
    resolve_arrivals,
)
from dpolicy.evaluation.workload_generator import generate_workload
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule

OURS, BASELINE = "DPolicy", "Cohere"
SYSTEMS = (OURS, BASELINE)


@dataclass(frozen=True, slots=True)
class PaperScenario:
    """Scenario of the evaluation; `measured_rules` returns the names of the rules by measure."""

    name: str
    title: str
    workload: str
    measured_rules: Callable[[Workload], Mapping[str, Sequence[str]]]


def _scope_measures(workload: Workload) -> Mapping[str, Sequence[str]]:
    """Return the scopes of high-risk categories at every level and of high-risk attributes."""
    categories = [n for n, facts in workload.categories.items() if facts["risk"] == "high"]
    attributes = [n for n, facts in workload.attributes.items() if facts["risk"] == "high"]
    levels = ("member", "strong", "weak")
    by_level = {lv: [f"per-category[{c}, {lv}]" for c in categories] for lv in levels}
    return {**by_level, "attribute": [f"per-attribute[{a}]" for a in attributes]}


def _whole_measures(workload: Workload) -> Mapping[str, Sequence[str]]:
    """Return the scopes of S2 for any deployment, those of S1, and all releases per month."""
    scopes = {
        measure: [f"{name} × any" for name in names]
        for measure, names in _scope_measures(workload).items()
    }
    context = {"standard": ["global × standard"], "total": ["global × any"]}
    return {**context, "month": ["global-month × any"], **scopes}


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        PaperScenario(
            "S1", "Context", "context", lambda _: {"standard": ["standard"], "total": ["any"]}
        ),
        PaperScenario("S2", "Scope", "scope", _scope_measures),
        PaperScenario("S3", "Privacy unit", "time", lambda _: {"month": ["each-month"]}),
        PaperScenario("whole", "All at once", "whole", _whole_measures),
    )
}


#: Scenarios of the paper; each has a bundled workload.
PUBLISHED = ("S1", "S2", "S3")


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """Parameters of one run; without a `seed` it uses the bundled workload.

    `timed` (S3 only) changes the share of requests on data that has a time; `rounds` is the number
    of rounds.
    """

    scenario: str
    total: int
    system: str
    strategy: str
    seed: int | None = None
    as_run: bool = True
    profile: str = "classic"
    timed: float | None = None
    rounds: int = len(ROUNDS)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of a run; the field names are keys of `dpolicy paper --format json`.

    `spent` and `budgets` are ε by measure. `rules` and `kept` count the rules before and after
    pruning. `seconds` is CPU time, `slowest` that of the slowest round, and `memory` the peak of
    the process in MB.
    """

    run: EvaluationRun
    utility: float
    bound: float
    accepted: int
    spent: Mapping[str, float]
    budgets: Mapping[str, float]
    rules: int
    kept: int
    seconds: float
    slowest: float
    memory: int

    def exceeds(self, measure: str) -> bool:
        """Return whether the run spent more than the policy of the scenario allows."""
        return self.spent[measure] > self.budgets[measure]

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


def run_all(runs: Sequence[EvaluationRun], processes: int) -> Iterator[EvaluationResult]:
    """Run in parallel processes and yield the results as they complete."""
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        futures = [pool.submit(execute_run, run) for run in runs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def execute_run(run: EvaluationRun) -> EvaluationResult:
    """Execute a run on its workload."""
    return evaluate_workload(run, workload_for(run))


def evaluate_workload(run: EvaluationRun, workload: Workload) -> EvaluationResult:
    """Execute a run on a given workload and measure its spending."""
    policy = policy_for(run, workload)
    outcomes = _outcomes(run, workload, policy)
    ids = {name for outcome in outcomes for name in outcome.selected}
    utility = sum(outcome.utility for outcome in outcomes)
    spent, budgets = measure_spending(run, workload, ids)
    return EvaluationResult(
        run,
        utility,
        sum(outcome.bound for outcome in outcomes),
        len(ids),
        spent,
        budgets,
        policy.rule_count,
        policy.kept_count,
        sum(outcome.total_seconds for outcome in outcomes),
        max(outcome.total_seconds for outcome in outcomes),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def workload_for(run: EvaluationRun) -> Workload:
    """Return the workload of a run: bundled, or generated from its seed."""
    name = SCENARIOS[run.scenario].workload
    if run.seed is None and run.scenario in PUBLISHED:
        workload = bundled_workload(name)
    else:
        workload = generate_workload(name, run.seed or 0)
    last = ROUNDS[: run.rounds][-1]
    requests = tuple(request for request in workload.requests if request["round"] <= last)
    workload = replace(workload, requests=requests)
    return workload if run.timed is None else with_timed_share(workload, run.timed, run.seed or 0)


def policy_for(run: EvaluationRun, workload: Workload) -> CompiledPolicy:
    """Return the policy set that a run enforces."""
    baseline = run.system == BASELINE
    return policy_for_workload(
        workload, run.total, as_run=run.as_run, baseline=baseline, profile=run.profile
    )


def _outcomes(run: EvaluationRun, workload: Workload, policy: CompiledPolicy) -> list[RoundOutcome]:
    arrivals = resolve_arrivals(workload, policy)
    if run.scenario == "S3" and run.system == OURS and run.as_run:
        arrivals = charge_coarse_blocks(workload, arrivals, _rotation())
    simulation = Simulation(policy, STRATEGIES[run.strategy], SCHEDULE, process_time)
    return list(simulation.run(arrivals, ROUNDS[: run.rounds]))


def measure_spending(
    run: EvaluationRun, workload: Workload, ids: set[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return, by measure, the spending of the selected requests and the budget of the policy."""
    selected = tuple(request for request in workload.requests if str(request["id"]) in ids)
    policy = policy_for(replace(run, system=OURS), workload)
    arrivals = resolve_arrivals(replace(workload, requests=selected), policy)
    rules = {rule.name: rule for rule, _ in policy.all_rules}
    enforced = enforce(policy)
    costs: dict[str, float] = {}
    budgets: dict[str, float] = {}
    for measure, names in SCENARIOS[run.scenario].measured_rules(workload).items():
        scopes = [rules[name] for name in names]
        if not scopes:  # a generated schema may have no scope of high risk
            continue
        costs[measure] = max(_largest_spending_in(enforced, rule, arrivals) for rule in scopes)
        budgets[measure] = min(_epsilon(rule) for rule in scopes)
    return costs, budgets


def _largest_spending_in(
    enforced: EnforcedPolicy, rule: Rule, arrivals: Sequence[Arrival]
) -> float:
    return largest_spending(
        enforced, rule, arrivals, _rotation(), cohorts_with_full_life(ROUNDS, _rotation())
    )


def cohorts_with_full_life(rounds: range, rotation: CohortRotation) -> range:
    """Return the cohorts that are active only in the given rounds."""
    return range(rounds.start, rounds.stop - rotation.active + 1)


def _rotation() -> CohortRotation:
    if SCHEDULE.rotation is None:
        raise OperationRejected("the scenario of the evaluation has no `cohorts`")
    return SCHEDULE.rotation


def _epsilon(rule: Rule) -> float:
    if not isinstance(rule.budget, EpsilonDelta):
        raise OperationRejected(f"`{rule.name}` has no budget in ε")
    return float(rule.budget.epsilon)
