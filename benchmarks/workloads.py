"""Policies and releases that benchmarks of speed share.

*small* is the policy of `benchmarks/serve.py`, *web* is `examples/web-analytics` with a thousand
times its budgets, and *10k* is the policy of `benchmarks/decide.py` with 10,000 rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.decide import ATTRIBUTES
from benchmarks.decide import policy as many_rules

from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

#: Pipelines repeat this number of contents under new ids.
REPEATED_CONTENTS = 50

SMALL_POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-month: {period: month}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}, age: {risk: low}}
  labels: {stage: {values: [final, tuning], default: final}}
policies:
  - {name: global, kind: custom, when: always, units: [user, user-month], budget: {epsilon: 1000}}
  - name: per-attribute
    kind: attribute
    unit: user
    budgets: {low: {epsilon: 800}, high: {epsilon: 500}}
"""

_WEB_EXAMPLE = Path(__file__).parent.parent / "examples" / "web-analytics"
_WEB_ATTRIBUTES = ("page-views", "click-path", "search-terms", "ip-prefix", "language", "basket")
_COUNTRIES = ("AT", "CH", "DE", "FR", "IT")
_DAYS = 28
#: Numbers that differ by this have the same place.
_PLACES = len(_COUNTRIES) * _DAYS

_ids = count()

#: A body in plain values.
PlainBody = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """A policy, and mechanisms by number: equal numbers have equal contents.

    `large_noise` is the noise of one mechanism that costs more than half of a cumulative budget.
    """

    name: str
    policy: CompiledPolicy
    make_mechanism: Callable[[int], PlainBody]
    large_noise: float

    def repeat_bodies(self, contents: int = REPEATED_CONTENTS) -> Iterator[PlainBody]:
        """Yield releases with a few contents, again and again, under new ids; never end."""
        mechanisms = [self.make_mechanism(number) for number in range(contents)]
        for number in count():
            yield make_body(mechanisms[number % contents])

    def vary_bodies(self) -> Iterator[PlainBody]:
        """Yield releases whose contents differ from all others of this run; never end."""
        for number in _ids:
            yield make_body(self.make_mechanism(1_000_000 + number))

    def make_wide_body(self, mechanisms: int) -> PlainBody:
        """Return a release of several mechanisms on one place, which the policy allows."""
        return make_body(*(self.make_mechanism(n * _PLACES) for n in range(mechanisms)))

    def make_large_body(self, mechanisms: int) -> PlainBody:
        """Return a release of several mechanisms that costs more than half of a budget."""
        body = self.make_wide_body(mechanisms)
        for mechanism in body["mechanisms"]:
            mechanism["mechanism"]["sigma"] = round(self.large_noise * math.sqrt(mechanisms), 4)
        return body


def make_body(*mechanisms: PlainBody) -> PlainBody:
    """Return a release with a new id."""
    return {"release": f"release-{next(_ids)}", "mechanisms": list(mechanisms)}


def make_small_workload(profile: str = "anchored") -> Workload:
    """Return the workload *small*: 5 kept rules."""
    text = SMALL_POLICY.replace("{delta: 1e-7}", f"{{delta: 1e-7, profile: {profile}}}")
    name = "small" if profile == "anchored" else f"small, {profile}"
    policy = compile_policy([Source("policy.yaml", text)])
    return Workload(name, policy, make_small_mechanism, 0.07)


def make_small_mechanism(number: int) -> PlainBody:
    """Return a mechanism of the workload *small*."""
    names = ["age", "views", "zip"]
    return {
        "mechanism": {"kind": "gaussian", "sigma": 1_000 + number},
        "unit": "user",
        "attributes": names[number % 3 :][:2],
    }


def make_web_workload() -> Workload:
    """Return the workload *web*: 98 kept rules, and releases on parts of the people and days."""
    sources = []
    for path in sorted(_WEB_EXAMPLE.glob("*.yaml")):
        if not path.name.endswith("_test.yaml"):
            text = re.sub(r"epsilon: ([0-9.]+)", _multiply_budget, path.read_text("utf-8"))
            sources.append(Source(path.name, text))
    return Workload("web", compile_policy(sources), _make_web_mechanism, 0.378)


def _multiply_budget(match: re.Match[str]) -> str:
    return f"epsilon: {float(match[1]) * 1_000:.0f}"


def _make_web_mechanism(number: int) -> PlainBody:
    day = f"2026-10-{1 + number % _DAYS:02}"
    return {
        "mechanism": {"kind": "gaussian", "sigma": 1_000 + number, "sensitivity": 14.15},
        "unit": "user-day",
        "relation": "change",
        "attributes": [_WEB_ATTRIBUTES[number % len(_WEB_ATTRIBUTES)]],
        "labels": {"dataset": "web", "purpose": ["research", "product"]},
        "where": {"country": [_COUNTRIES[number % len(_COUNTRIES)]]},
        "time": {"from": day, "to": day},
    }


def make_10k_workload() -> Workload:
    """Return the workload *10k*: 10,017 kept rules."""
    return Workload("10k", many_rules(), _make_10k_mechanism, 0.03)


def _make_10k_mechanism(number: int) -> PlainBody:
    names = {f"a{number * factor % ATTRIBUTES}" for factor in (1, 7, 11)}
    return {
        "mechanism": {"kind": "gaussian", "sigma": 1_000 + number},
        "unit": "user",
        "attributes": sorted(names),
    }
