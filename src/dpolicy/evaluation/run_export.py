"""Export of a run as files: a policy set, releases, and a scenario file.

`dpolicy simulate DIRECTORY/scenario.yaml` then repeats the run. S3 is exported with single months:
a release cannot express the coarse blocks of S3 (s3_variants.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from dpolicy.evaluation.experiment import BASELINE, EvaluationRun, policy_for, workload_for
from dpolicy.evaluation.workload import (
    SCENARIO_FILE,
    Workload,
    curve_points,
    month_days,
    policy_sources,
)
from dpolicy.rules.compiler import CompiledPolicy


def export_run(run: EvaluationRun, directory: Path) -> None:
    """Write policy, releases and scenario of a run into a directory."""
    workload = workload_for(run)
    sources = policy_sources(
        workload,
        run.total,
        as_run=run.as_run,
        baseline=run.system == BASELINE,
        profile=run.profile,
    )
    policy = directory / "policy"
    policy.mkdir(parents=True, exist_ok=True)
    for name, source in zip(("accounting", "schema", "policies"), sources, strict=True):
        (policy / f"{name}.yaml").write_text(source.text, "utf-8")
    lines = (
        f"- {json.dumps(release)}\n"
        for release in workload_releases(workload, policy_for(run, workload))
    )
    with (directory / "requests.yaml").open("w", encoding="utf-8") as file:
        file.writelines(lines)
    shutil.copyfile(SCENARIO_FILE, directory / "scenario.yaml")


def workload_releases(workload: Workload, policy: CompiledPolicy) -> Iterator[dict[str, Any]]:
    """Yield the requests of a workload as releases, each with its round."""
    curves = []
    for mechanism in workload.mechanisms:
        points = curve_points(mechanism, workload.orders, policy)
        curves.append({order: float(value) for order, value in points.items()})
    timed = "user-month" in policy.checked_policy_set.vocabulary.units
    for request in workload.requests:
        yield {
            "round": request["round"],
            "release": str(request["id"]),
            "utility": request["utility"],
            "mechanisms": [_mechanism_body(request, curves[request["mechanism"]], timed)],
        }


def _mechanism_body(
    request: Mapping[str, Any], renyi: Mapping[str, float], timed: bool
) -> dict[str, Any]:
    mechanism: dict[str, Any] = {
        "name": "query",
        "mechanism": {"kind": "declared", "renyi": renyi},
        "unit": "user",
        "attributes": request["attributes"],
        "labels": {"deployment": request["deployment"]},
        "where": [{"slot": {"from": low, "to": high}} for low, high in request["ranges"]],
    }
    if timed and "month" in request:
        ((first, last),) = month_days(request["month"]).intervals
        days = {"from": first, "to": last}
        mechanism["time"] = {
            key: date.fromordinal(day or 1).isoformat() for key, day in days.items()
        }
        mechanism["also"] = {"user-month": {"renyi": renyi}}
    return mechanism
