"""Questions to the prover: a scope, a privacy unit, and optionally a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dpolicy.balances.partition_space import build_partition_space
from dpolicy.errors import InvalidValue
from dpolicy.predicates.expression import Always, Predicate, parse_predicate
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.did_you_mean import suggest

#: Title by code. A code never changes its meaning.
PROBLEMS: Mapping[str, str] = {
    "Q001": "the scope of a question is not a valid predicate",
    "Q002": "a question names a unit that the policy does not define",
    "Q003": "a coalition needs a label with a list of values",
    "Q004": "a question has too many cases",
    "Q005": "a claim is no bound",
}


@dataclass(frozen=True, slots=True)
class Question:
    """The composed loss of all mechanisms in a scope, for one unit, everywhere or at a place."""

    scope: Predicate
    text: str
    unit: str
    at: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def as_json(self) -> dict[str, object]:
        """Return the JSON of the question."""
        return {"when": self.text, "unit": self.unit, "at": dict(self.at)}


def parse_question(
    policy: CompiledPolicy, when: str, unit: str, at: Mapping[str, str] | None = None
) -> Question:
    """Return the question. Raise `InvalidValue` if a name or the predicate is not valid."""
    if unit not in policy.units:
        help_ = suggest(unit, policy.units) or "see the section `units` of the policy"
        raise InvalidValue("Q002", f"the policy has no unit `{unit}`; help: {help_}")
    place = MappingProxyType(dict(at or {}))
    if place:
        build_partition_space(policy).parse_location(place)
    return Question(_parse_scope(policy, when), when, unit, place)


def _parse_scope(policy: CompiledPolicy, when: str) -> Predicate:
    if when == "always":
        return Always()
    parsed = parse_predicate(when, policy.schema)
    if isinstance(parsed, tuple):
        problem = parsed[0]
        message = f"`{when}` at character {problem.offset + 1}: {problem.message}"
        raise InvalidValue("Q001", f"{message}; help: {problem.help}" if problem.help else message)
    return parsed
