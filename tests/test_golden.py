"""Digests, heads and balances that were written once and must come out of every later version.

The policy digest hashes the names of classes and fields of the policy model, and a ledger hashes
its events: a renamed class, field or message that is part of either would change what past records
mean. `python -m tests.test_golden` writes the files again; a diff of them needs a reason.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from dpolicy import DecisionPoint, PolicyRejected, load_policy, load_release
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.policy.accounting.accounting_defaults import (
    DEFAULTS,
    NEWEST_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "data" / "golden"
DIGESTS = GOLDEN / "digests.json"
#: The recorded runs, by the number of their accounting defaults.
RUNS = {2: GOLDEN / "run.json", 3: GOLDEN / "run-defaults-3.json"}
POLICIES = sorted(
    path
    for pattern in (
        "examples/**/*.yaml",
        "tests/cases/decisions/*.yaml",
        "tests/cases/pruning/*.yaml",
        "tests/data/golden/*.yaml",
    )
    for path in ROOT.glob(pattern)
    if "mistakes" not in path.parts and "\ndpolicy: 1\n" in "\n" + path.read_text("utf-8")
)


def digest(path: Path) -> str:
    """Return the digest of a policy set of one file, or `rejected`."""
    try:
        return load_policy(path).digest
    except PolicyRejected:
        return "rejected"


def texts(name: str) -> list[Path]:
    """Return the policy files of one recorded run."""
    return sorted((GOLDEN / "run" / name).glob("*.yaml"))


def run_commands(defaults: AccountingDefaults) -> dict[str, object]:
    """Run every example's releases on a ledger in memory; return its payloads' head and totals.

    Check that the audit of each ledger has no findings.
    """
    outcome: dict[str, object] = {}
    for name in ("web-analytics", "census-2020", "governance"):
        instants = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(500))
        store = MemoryStore()
        point = DecisionPoint(store, clock=partial(next, instants))
        sources = [Source(path.name, path.read_text("utf-8")) for path in texts(name)]
        compiled = compile_policy(sources, defaults)
        point.apply(compiled, by="officer", because="start")
        for path in sorted((GOLDEN / "run" / name / "releases").glob("*.yaml")):
            release = load_release(path)
            for number in range(4):
                body = dict(release.body) | {"release": f"{path.stem}-{number}"}
                (point.submit, point.reserve, point.submit, point.import_past)[number](body)
            if point.entries[f"{path.stem}-1"].status == "reserved":
                point.commit(f"{path.stem}-1", by="analyst")
        records = list(point.records())
        assert audit_ledger(store).findings == ()
        outcome[name] = {
            "records": len(records),
            "head": records[-1].digest.hex(),
            "statuses": {key: entry.status for key, entry in point.entries.items()},
            "spent": {f"{b.rule.name} {b.rule.unit}": dict(b.spent) for b in point.budgets()},
        }
    return outcome


def test_policy_digests_are_those_of_version_0_1() -> None:
    recorded = json.loads(DIGESTS.read_text("utf-8"))
    assert {str(path.relative_to(ROOT)): digest(path) for path in POLICIES} == recorded


@pytest.mark.parametrize("number", RUNS)
def test_a_run_gives_the_golden_records(number: int) -> None:
    assert run_commands(DEFAULTS[number]) == json.loads(RUNS[number].read_text("utf-8"))


def test_the_newest_defaults_have_a_golden_run() -> None:
    assert NEWEST_DEFAULTS.number in RUNS


if __name__ == "__main__":
    digests = {str(path.relative_to(ROOT)): digest(path) for path in POLICIES}
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", "utf-8")
    for number, path in RUNS.items():
        path.write_text(json.dumps(run_commands(DEFAULTS[number]), indent=1) + "\n", "utf-8")
