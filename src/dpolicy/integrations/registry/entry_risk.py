"""Attacker risk of registry entries, from the loss that each entry states.

The numbers hold for the stated privacy unit and for one release. An entry that states several
releases, or does not state how many, bounds each release and not all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.integrations.registry.entry_reader import PARAMETERS_PATH, UNIT_PATH, EntryReader
from dpolicy.integrations.value_reader import lookup, shorten
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Zcdp, budget_to_json
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, risk_of_budget
from dpolicy.releases.python.python_values import to_plain_body

_MODEL_PATHS = ("deployment.deployment_model.model_name", "deployment.model.model_name")


@dataclass(frozen=True, slots=True)
class EntryRisk:
    """Risk of one release of an entry; `risk` is None if the entry states no bound for a unit.

    `unit`, `model` and `loss` are as the entry states them, or None. `problems` has the reasons why
    there is no bound.
    """

    entry: str
    unit: str | None
    model: str | None
    loss: Budget | None
    is_single_release: bool
    risk: AttackerRisk | None
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return the plain values that the command prints."""
        return {
            "entry": self.entry,
            "unit": self.unit,
            "model": self.model,
            "loss": None if self.loss is None else budget_to_json(self.loss),
            "covers": "one release" if self.is_single_release else "each release",
            "risk": None if self.risk is None else self.risk.as_json(),
            "problems": list(self.problems),
        }


def read_entry_risk(entry: Mapping[str, Any]) -> EntryRisk:
    """Return the risk of a registry entry."""
    reader = EntryReader(to_plain_body(entry))
    name, is_single_release = reader.read_slug(), reader.is_single_release()
    unit, loss = _first_text(entry, (UNIT_PATH,)), _stated_loss(reader)
    if unit is None:
        reader.report("G001", UNIT_PATH, "the entry states no unit")
    risk = None if unit is None or loss is None else risk_of_budget(loss)
    problems = tuple(str(problem) for problem in reader.problems)
    model = _first_text(entry, _MODEL_PATHS)
    return EntryRisk(name, unit, model, loss, is_single_release, risk, problems)


def _stated_loss(reader: EntryReader) -> Budget | None:
    """Return the stated loss; report parameters that no mechanism can have."""
    parameters = reader.read_loss()
    if parameters is None:
        return None
    problems = parse_mechanism({"kind": "declared", **parameters})[1]
    for problem in problems:
        reader.report(problem.code, PARAMETERS_PATH, problem.message)
    if problems:
        return None
    if "epsilon" in parameters:
        return EpsilonDelta(parameters["epsilon"], parameters.get("delta", Fraction(0)))
    return Zcdp(parameters["rho"]) if "rho" in parameters else Gdp(parameters["mu"])


def _first_text(entry: Mapping[str, Any], paths: tuple[str, ...]) -> str | None:
    """Return the first text that is not empty, shortened, on one line; None without one."""
    values = [lookup(entry, path) for path in paths]
    texts = [" ".join(value.split()) for value in values if isinstance(value, str)]
    return next((shorten(text) for text in texts if text), None)
