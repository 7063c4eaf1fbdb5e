"""Registry of mechanism kinds, and the parser of mechanisms.

The family modules declare their kinds; this module only collects them. To add a kind, add it to the
`KINDS` of its family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dpolicy.errors import InvalidValue
from dpolicy.privacy.mechanisms import (
    declared,
    gaussian,
    laplace,
    randomized_response,
    selection,
)
from dpolicy.privacy.mechanisms.mechanism import Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.parameters import ParameterReader, suggestion_or
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

_FAMILIES = (declared, gaussian, laplace, randomized_response, selection)

#: Relation for which libraries state a noise multiplier.
_LIBRARY_RELATION = NeighbouringRelation.ADD_REMOVE

#: All mechanism kinds (docs/releases.md), sorted by name. The names are the values of `mechanism`
#: in CEL.
MECHANISM_KINDS: Mapping[str, MechanismKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in sorted(
            (kind for family in _FAMILIES for kind in family.KINDS), key=lambda kind: kind.name
        )
    }
)


def parse_mechanism(
    fields: Mapping[str, object],
) -> tuple[Mechanism | None, tuple[InvalidValue, ...]]:
    """Return the mechanism and no problems, or None and all problems."""
    kind = _find_kind(fields)
    if kind is None:
        return None, (_unknown_kind(fields.get("kind")),)
    reader = ParameterReader(fields, kind.name, kind.allowed_parameters(fields))
    if reader.has("data-dependent") and reader.raw("data-dependent") is not False:
        message = "a data-dependent loss is not accepted; help: state the data-independent loss"
        reader.report("M014", message)
    count = reader.positive_integer("count", default=1)
    mechanism = kind.build(reader, count, reader.rate())
    problems = reader.finish()
    return (None, problems) if problems else (mechanism, ())


def parse_restatements(
    fields: Mapping[str, object], restatements: Mapping[str, Mapping[str, object]]
) -> tuple[Mapping[str, Mechanism], tuple[InvalidValue, ...]]:
    """Return the mechanism restated for other units, by unit, and all problems.

    A restatement replaces some parameters of `fields`. Only parameters relative to the unit can be
    replaced.
    """
    mechanisms: dict[str, Mechanism] = {}
    problems: list[InvalidValue] = []
    kind = _find_kind(fields)
    restatable = kind.restatable if kind else frozenset[str]()
    for unit, changes in restatements.items():
        fixed = [name for name in changes if name not in restatable]
        for name in fixed:
            message = f"`{name}` cannot be restated for `{unit}`: it is the same for every unit"
            problems.append(InvalidValue("M017", message))
        mechanism, unit_problems = parse_mechanism(_restate(fields, changes, kind))
        if mechanism is not None and not fixed:
            mechanisms[unit] = mechanism
        problems.extend(unit_problems)
    return mechanisms, tuple(problems)


def find_relation_problems(
    kind: str, stated: NeighbouringRelation | None, unit: NeighbouringRelation
) -> Iterator[InvalidValue]:
    """Yield the problems of a mechanism kind under a relation: the stated one, else the unit's."""
    definition, relation = MECHANISM_KINDS.get(kind), stated or unit
    if definition is None:
        return
    if definition.relations is not None and relation not in definition.relations:
        choices = " or ".join(f"`relation: {choice}`" for choice in sorted(definition.relations))
        message = f"`{kind}` is not private under `{relation}`, because the number of its answers"
        yield InvalidValue("R010", f"{message} is no secret; help: state {choices}")
    if definition.needs_stated_relation and stated is None and relation != _LIBRARY_RELATION:
        message = f"the `noise-multiplier` of `{kind}` has two readings under `{relation}`"
        help_ = f"state `relation: {_LIBRARY_RELATION}` if it is σ divided by the clipping norm"
        yield InvalidValue("R011", f"{message}; help: {help_}")


def _restate(
    fields: Mapping[str, object], changes: Mapping[str, object], kind: MechanismKind | None
) -> dict[str, object]:
    """Return the fields with changes.

    A restatement may select another variant of the kind, so it keeps no restatable parameter then.
    """
    if kind is None or not kind.variants:
        return {**fields, **changes}
    kept = {name: value for name, value in fields.items() if name not in kind.restatable}
    return {**kept, **changes}


def _find_kind(fields: Mapping[str, object]) -> MechanismKind | None:
    name = fields.get("kind")
    return MECHANISM_KINDS.get(name) if isinstance(name, str) else None


def _unknown_kind(name: object) -> InvalidValue:
    choices = f"; one of {', '.join(MECHANISM_KINDS)}"
    if name is None:
        return InvalidValue("M001", f"a mechanism needs a `kind`{choices}")
    hint = suggestion_or(str(name), MECHANISM_KINDS, choices)
    return InvalidValue("M001", f"unknown kind `{name}`{hint}")
