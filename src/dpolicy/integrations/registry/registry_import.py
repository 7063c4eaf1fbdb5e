"""Conversion of registry entries to imported releases.

If an entry contains its release, that release is imported. Otherwise the entry becomes a `declared`
loss that reads every attribute of all users: missing information is charged as the worst case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpolicy.decisions.release_totals import total_costs
from dpolicy.decisions.resolution import complete_or_none
from dpolicy.errors import InvalidValue, LedgerDamaged, PolicyRejected
from dpolicy.integrations.registry.embedded_names import other_definitions, unknown_definitions
from dpolicy.integrations.registry.entry_reader import (
    LOSS_PATH,
    PARAMETERS_PATH,
    UNIT_PATH,
    EntryReader,
)
from dpolicy.integrations.registry.registry_export import (
    EMBEDDED_MEANING_PREFIX,
    EMBEDDED_RELEASE_PREFIX,
)
from dpolicy.integrations.value_reader import lookup, shorten
from dpolicy.ledger.canonical import decode_canonical
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.cost_report import CostReport, round_up_to_printed_float
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import Body
from dpolicy.releases.meaning import meaning_from_text
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: Problem codes with their titles.
PROBLEMS: Mapping[str, str] = {
    "G001": "missing key, or value of the wrong type",
    "G002": "privacy parameters that state no supported loss",
    "G003": "privacy unit that is not a unit of the policy",
    "G004": "entry with several releases, or without their number",
    "G005": "embedded release that cannot be read, or that uses names with other definitions",
    "G006": "embedded release that costs less than the entry states, or has no bound to compare",
}

_INFORMATION_PATH = "deployment.implementation.additional_information"
#: Relative difference that is attributed to the rounding of floats.
_ROUNDING_TOLERANCE = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class RegistryImportOptions:
    """Information about an entry that the entry does not contain.

    `unit` is the unit of the policy that corresponds to the privacy unit of the entry. `times` is
    the number of publications per unit for an entry of several releases. `labels` are the labels
    that the policy requires.
    """

    unit: str | None = None
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE
    times: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def is_registry_entry(value: object) -> bool:
    """Return whether plain values have the keys of an entry."""
    return isinstance(value, Mapping) and "deployment" in value and "release" not in value


def release_body_from_entry(
    entry: Mapping[str, Any], policy: CompiledPolicy, options: RegistryImportOptions
) -> tuple[Body | None, tuple[InvalidValue, ...]]:
    """Return the body of the release that an entry describes, or None and all problems."""
    if not is_registry_entry(entry):
        return None, (InvalidValue("G001", "not a registry entry: `deployment` is missing"),)
    reader = _ImportReader(to_plain_body(entry), policy, options)
    text = reader.find_embedded_release()
    body = reader.build_declared_release() if text is None else reader.parse_embedded_release(text)
    return (None, reader.problems) if reader.problem_count else (body, ())


class _ImportReader(EntryReader):
    """Reader of one entry for a policy."""

    def __init__(
        self, entry: Mapping[str, Any], policy: CompiledPolicy, options: RegistryImportOptions
    ) -> None:
        super().__init__(entry)
        self._policy, self._options = policy, options

    def find_embedded_release(self) -> str | None:
        """Return the text of the release that the entry contains, or None."""
        return self._find_line(EMBEDDED_RELEASE_PREFIX, "releases")

    def _find_line(self, prefix: str, title: str) -> str | None:
        """Return the text of the line with a prefix; None if the entry has no such line."""
        lines = str(lookup(self._entry, _INFORMATION_PATH)).split("\n")
        texts = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        if len(texts) > 1:
            message = f"contains {len(texts)} {title}; an entry has one"
            self.report("G005", _INFORMATION_PATH, message)
        return texts[0] if texts else None

    def _check_embedded_meaning(self, release: Release) -> None:
        """Report names of the release that the policy defines otherwise than the exporter did."""
        text = self._find_line(EMBEDDED_MEANING_PREFIX, "meanings")
        if text is None:
            return
        line = EMBEDDED_MEANING_PREFIX.strip()
        try:
            meaning = meaning_from_text(text)
        except LedgerDamaged:
            self.report("G005", _INFORMATION_PATH, f"the line `{line}` contains no valid meaning")
            return
        for name in unknown_definitions(release, meaning):
            message = f"the line `{line}` does not define {name} of the release"
            self.report("G005", _INFORMATION_PATH, message)
        for name in other_definitions(meaning, self._policy):
            message = f"the embedded release uses {name}, which this policy defines otherwise"
            help_ = "define it in the policy as the exporter did"
            self.report("G005", _INFORMATION_PATH, f"{message}; help: {help_}")

    def parse_embedded_release(self, text: str) -> Body | None:
        """Return the embedded release; report it if it costs less than the entry states."""
        line = EMBEDDED_RELEASE_PREFIX.strip()
        if self._options.times is not None:
            message = "contains its release, which was published once; help: omit `--times`"
            self.report("G004", _INFORMATION_PATH, message)
        try:
            release = parse_request(decode_canonical(text.encode("utf-8", "replace")))
            meaning = complete_or_none(release, self._policy)
            costs = {} if meaning is None else total_costs(release, meaning, self._policy)
        except (PolicyRejected, InvalidValue, ValueError, TypeError, RecursionError) as error:
            message = f"the line `{line}` contains no valid release: {error}"
            self.report("G005", _INFORMATION_PATH, message)
            return None
        self._check_embedded_meaning(release)
        if costs and lookup(self._entry, LOSS_PATH) is not None:
            unit, loss = self._read_unit(), self.read_loss()
            problem = None if unit is None or loss is None else _contradiction(costs[unit], loss)
            if problem is not None:
                help_ = f"help: remove the line `{line}` to charge the stated loss"
                message = f"the embedded release {problem.format(unit=unit)}; {help_}"
                self.report("G006", LOSS_PATH, message)
        return release.body

    def build_declared_release(self) -> Body:
        """Return the stated loss as a release on every attribute, all users and all time."""
        unit, loss = self._read_unit(), self.read_loss()
        mechanism = {"kind": "declared", **(loss or {})}
        if self._options.times is not None:
            mechanism["count"] = Fraction(self._options.times)
        elif not self.is_single_release():
            message = "the entry does not state that it covers one release"
            help_ = "help: pass `--times` with the number of publications for the same unit"
            self.report("G004", "deployment.deployment_model", f"{message}; {help_}")
        if loss is not None:
            for problem in parse_mechanism(mechanism)[1]:
                self.report(problem.code, PARAMETERS_PATH, problem.message)
        fields = {
            "name": "registry entry",
            "mechanism": mechanism,
            "unit": unit,
            "relation": str(self._options.relation),
            "attributes": sorted(self._policy.checked_policy_set.vocabulary.schema.attributes),
            "labels": self._options.labels,
        }
        return {"release": self.read_slug(), "mechanisms": [fields]}

    def _read_unit(self) -> str | None:
        """Return the unit of the policy that the entry names, or None."""
        units = self._policy.checked_policy_set.vocabulary.units
        name = self._options.unit or lookup(self._entry, UNIT_PATH)
        if not isinstance(name, str):
            self.report("G001", UNIT_PATH, "a unit is missing; help: pass `--unit`")
            return None
        matches = [unit for unit in units if unit == name]
        matches = matches or [u for u in units if _normalize_unit(u) == _normalize_unit(name)]
        if len(matches) == 1:
            return matches[0]
        help_ = f"help: pass `--unit` with one of {', '.join(f'`{unit}`' for unit in units)}"
        self.report("G003", UNIT_PATH, f"the policy has no unit `{shorten(name)}`; {help_}")
        return None


def _contradiction(costs: CostReport, stated: Mapping[str, Any]) -> str | None:
    """Return why the costs do not confirm the stated loss, or None if they are at least as large.

    Costs without a bound in a stated notion could be charged less in every other notion.
    """
    bounds = {
        "epsilon": costs.epsilon(stated.get("delta", Fraction(0))),
        "rho": None if costs.rho is None else round_up_to_printed_float(costs.rho),
        "mu": costs.mu,
    }
    for notion in (name for name in bounds if name in stated):
        bound = bounds[notion]
        if bound is None:
            return f"has no bound for unit `{{unit}}` in the stated notion `{notion}`"
        if Fraction(bound) < stated[notion] * (1 - _ROUNDING_TOLERANCE):
            return "costs unit `{unit}` less than the entry states"
    return None


def _normalize_unit(name: str) -> str:
    """Normalize the spelling of a unit: `User level` becomes `user`."""
    return re.sub(r"[\s_-]+", "-", re.sub(r"[\s_-]*level$", "", name.strip().lower()))
