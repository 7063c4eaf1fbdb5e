"""Vocabulary of a policy set: resolved units, their order, and the schema of releases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dpolicy.errors import InvalidValue
from dpolicy.policy.model import Attribute, LabelStatement, Partition, PolicySet
from dpolicy.privacy.units.calendar import Period
from dpolicy.privacy.units.privacy_units import PrivacyUnit, parse_period, period_within
from dpolicy.releases.release_schema import Label, ReleaseSchema
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.yaml_reader import LocatedText

#: Entity of the units `user-…`, and of units whose names have no prefix, if the policy set has no
#: unit without a period.
DEFAULT_ENTITY = "user"

#: Characters that separate the words of a name.
_SEPARATORS = frozenset("-_.:/ ")

#: The last word of the name of a unit with its separator: `-month` of `household-month`.
_LAST_WORD = re.compile(r"[-_.:/ ][^-_.:/ ]*$")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Closed set of names that a policy set defines.

    `entities` and `covered` contain pairs (smaller, larger) of entities and of distinct units.
    Whether a rule for the larger unit implies one for the smaller depends on the relation too.
    """

    units: Mapping[str, PrivacyUnit]
    entities: frozenset[tuple[str, str]]
    covered: frozenset[tuple[str, str]]
    schema: ReleaseSchema

    def covers(self, larger: str, smaller: str) -> bool:
        """Return whether each member of `smaller` belongs to one member of `larger`."""
        return (smaller, larger) in self.entities


def read_vocabulary(policies: PolicySet, diagnostics: DiagnosticCollector) -> Vocabulary:
    """Resolve every name of the `units` and `schema` sections; report unknown names."""
    units = _read_units(policies, diagnostics)
    _check_categories(policies, diagnostics)
    _check_attributes(policies, diagnostics)
    labels = {
        str(name): _read_label(name, definition, diagnostics)
        for name, definition in policies.labels.items()
    }
    schema = ReleaseSchema(frozenset(map(str, policies.attributes)), labels)
    entities = _read_covers(policies, diagnostics)
    _check_partitions(policies, smallest_entities(units, entities), diagnostics)
    return Vocabulary(units, entities, _find_covered_units(units, entities), schema)


def _read_units(policies: PolicySet, diagnostics: DiagnosticCollector) -> dict[str, PrivacyUnit]:
    units = {}
    for name, definition in policies.units.items():
        entity = _find_entity(name, policies, diagnostics)
        period = _read_period(name, definition.period, diagnostics)
        relation = definition.relation or policies.accounting.relation
        units[str(name)] = PrivacyUnit(str(name), entity, period, relation)
    return units


def _read_period(
    unit: LocatedText, text: str | None, diagnostics: DiagnosticCollector
) -> Period | None:
    if text is None:
        return None
    try:
        return parse_period(text)
    except InvalidValue as error:
        span = text.span if isinstance(text, LocatedText) else unit.span
        message, _, help_ = error.message.partition("; help: ")
        example = "write a period such as `month` or `sliding 30 days`"
        diagnostics.report("P013", message, span, help_ or example)
        return None


def _find_entity(name: LocatedText, policies: PolicySet, diagnostics: DiagnosticCollector) -> str:
    """Return the entity of a unit: its `of`, else the prefix of its name, else the only entity.

    Report a prefix that is not a unit without a period: `household-month` does not protect a user.
    A unit without a period is an entity of its own, so it has no `of`.
    """
    definition = policies.units[name]
    if definition.period is None:
        if definition.of is not None and definition.of != name:
            message = f"the unit `{name}` has no period, so it cannot have `of`"
            help_ = f"remove `of`; if `{definition.of}` has several `{name}`, "
            help_ += f"add `covers: [{name}]` to `{definition.of}`"
            diagnostics.report("P018", message, definition.of.span, help_)
        return str(name)
    if definition.of is not None:
        return str(definition.of)
    entities = [str(other) for other, unit in policies.units.items() if unit.period is None]
    prefixes = [entity for entity in entities or [DEFAULT_ENTITY] if _has_prefix(name, entity)]
    if prefixes:
        return max(prefixes, key=len)
    prefix, *rest = _LAST_WORD.split(name)
    prefix = prefix if rest else ""
    if prefix or len(entities) > 1:
        help_ = _choose_entity_help(prefix, entities)
        message = f"the unit `{name}` does not state whose data it protects"
        diagnostics.report("P018", message, name.span, help_)
    return prefix or (entities or [DEFAULT_ENTITY])[0]


def _has_prefix(name: str, entity: str) -> bool:
    """Return whether the name of a unit starts with an entity and a separator."""
    return name.startswith(entity) and name[len(entity) : len(entity) + 1] in _SEPARATORS


def _choose_entity_help(prefix: str, entities: list[str]) -> str:
    choices = ", ".join(f"`{entity}`" for entity in entities[:5])
    if not prefix:
        return f"add `of` with one of {choices}"
    return f"add a unit `{prefix}`, or state `of`" + (f" with one of {choices}" if choices else "")


def _read_covers(
    policies: PolicySet, diagnostics: DiagnosticCollector
) -> frozenset[tuple[str, str]]:
    """Return the transitive closure of `covers` as pairs (smaller, larger) of entities."""
    pairs = set()
    for name, definition in policies.units.items():
        entity = () if definition.of is None else (definition.of,)
        for unit_name in (*definition.covers, *entity):
            if unit_name not in policies.units:
                message = f"unknown unit `{unit_name}`"
                diagnostics.report(
                    "P020", message, unit_name.span, suggest(unit_name, policies.units)
                )
            elif definition.period is not None and unit_name in definition.covers:
                message = f"`{name}` has a period, so it cannot have `covers`"
                help_ = "set `of` to a unit without a period, and add `covers` to that unit"
                diagnostics.report("P017", message, unit_name.span, help_)
            elif policies.units[unit_name].period is not None:
                message = f"`{unit_name}` has a period, so `covers` and `of` cannot name it"
                diagnostics.report("P017", message, unit_name.span, "name a unit without a period")
            elif unit_name in definition.covers:
                pairs.add((str(unit_name), str(name)))
    return _close_transitively(pairs, policies, diagnostics)


def _close_transitively(
    pairs: set[tuple[str, str]], policies: PolicySet, diagnostics: DiagnosticCollector
) -> frozenset[tuple[str, str]]:
    """Return the transitive closure of the pairs; report a cycle."""
    larger: dict[str, list[str]] = {}
    for smaller, above in sorted(pairs):
        larger.setdefault(smaller, []).append(above)
    closure = set()
    for start in larger:
        queue, reached = [start], set[str]()
        while queue:
            new = [above for above in larger.get(queue.pop(), ()) if above not in reached]
            reached.update(new)
            queue += new
        closure |= {(start, above) for above in reached}
    cycle = [name for name in policies.units if (str(name), str(name)) in closure]
    if cycle:
        through = ", ".join(f"`{name}`" for name in cycle[1:5])
        message = f"`{cycle[0]}` covers itself" + (f" through {through}" if through else "")
        diagnostics.report("P014", message, cycle[0].span, "remove one of the `covers`")
    return frozenset(closure)


def _find_covered_units(
    units: Mapping[str, PrivacyUnit], entities: frozenset[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    return frozenset(
        (a.name, b.name)
        for a in units.values()
        for b in units.values()
        if a.name != b.name
        and (a.entity == b.entity or (a.entity, b.entity) in entities)
        and period_within(a.period, b.period)
    )


def _check_categories(policies: PolicySet, diagnostics: DiagnosticCollector) -> None:
    for category in policies.categories.values():
        _check_level(category.risk, policies.risk_levels, "risk level", diagnostics)
    used = {
        c for a in policies.attributes.values() for names in a.memberships.values() for c in names
    }
    for name in policies.categories:
        if name not in used:
            message = f"no attribute belongs to the category `{name}`, so its rules never match"
            help_ = "add the category to an attribute, or remove it"
            diagnostics.report("P101", message, name.span, help_)


def _check_attributes(policies: PolicySet, diagnostics: DiagnosticCollector) -> None:
    for attribute in policies.attributes.values():
        _check_level(attribute.risk, policies.risk_levels, "risk level", diagnostics)
        _check_memberships(attribute, policies, diagnostics)


def _check_memberships(
    attribute: Attribute, policies: PolicySet, diagnostics: DiagnosticCollector
) -> None:
    visited: set[str] = set()
    for level, categories in attribute.memberships.items():
        _check_level(level, policies.membership_levels, "membership level", diagnostics)
        for category in categories:
            if category not in policies.categories:
                message = f"unknown category `{category}`"
                diagnostics.report(
                    "P022", message, category.span, suggest(category, policies.categories)
                )
            if category in visited:
                message = f"duplicate category `{category}` of this attribute"
                diagnostics.report("P010", message, category.span, "remove one of them")
            visited.add(category)


def _check_level(
    level: LocatedText | None,
    known_names: tuple[str, ...],
    what: str,
    diagnostics: DiagnosticCollector,
) -> None:
    if level and level not in known_names:  # the empty text replaces a level that was reported
        message = f"unknown {what} `{level}`"
        diagnostics.report("P024", message, level.span, suggest(level, known_names))


def smallest_entities(
    units: Mapping[str, PrivacyUnit], entities: frozenset[tuple[str, str]]
) -> frozenset[str]:
    """Return the entities that cover no other entity."""
    larger = {above for _, above in entities}
    return frozenset(unit.entity for unit in units.values()) - larger


def partition_owners(partition: Partition, vocabulary: Vocabulary) -> frozenset[str]:
    """Return the entities that may own a partition: the stated one, else the smallest ones.

    Each member of the owner has one value, for all its data and for all time.
    """
    if partition.of is not None:
        return frozenset({vocabulary.units[str(partition.of)].entity})
    return smallest_entities(vocabulary.units, vocabulary.entities)


def _check_partitions(
    policies: PolicySet, owners: frozenset[str], diagnostics: DiagnosticCollector
) -> None:
    for name, partition in policies.partitions.items():
        if partition.first is not None and partition.last is not None:
            if partition.first > partition.last:
                message = f"the range of the partition `{name}` is empty"
                diagnostics.report("P015", message, name.span, "swap `from` and `to`")
        elif partition.values is not None and len(set(partition.values)) < len(partition.values):
            message = f"the partition `{name}` has a duplicate value"
            diagnostics.report("P010", message, name.span, "remove one of them")
        _check_partition_owner(name, partition.of, policies, owners, diagnostics)


def _check_partition_owner(
    name: LocatedText,
    owner: LocatedText | None,
    policies: PolicySet,
    owners: frozenset[str],
    diagnostics: DiagnosticCollector,
) -> None:
    if owner is None:
        if len(owners) > 1:
            message = f"the partition `{name}` does not state its unit, so it splits no rule"
            choices = ", ".join(f"`{choice}`" for choice in sorted(owners)[:5])
            diagnostics.report("P107", message, name.span, f"add `of` with one of {choices}")
    elif owner not in policies.units:
        message = f"unknown unit `{owner}`"
        diagnostics.report("P020", message, owner.span, suggest(owner, policies.units))
    elif policies.units[owner].period is not None:
        message = f"`{owner}` has a period, so it cannot own a partition"
        diagnostics.report("P017", message, owner.span, "name a unit without a period")


def _read_label(
    name: LocatedText, definition: LabelStatement, diagnostics: DiagnosticCollector
) -> Label:
    values = tuple(map(str, definition.values)) if definition.values else None
    if (definition.values is None) != definition.text:
        message = f"the label `{name}` needs either `values` or `text: true`"
        diagnostics.report("P016", message, name.span, None)
    if values and len(set(values)) < len(values):
        message = f"the label `{name}` has a duplicate value"
        diagnostics.report("P010", message, name.span, "remove one of them")
    if definition.default is not None and values and definition.default not in values:
        message = f"the default `{definition.default}` is not a value of `{name}`"
        help_ = suggest(definition.default, values)
        diagnostics.report("P016", message, definition.default.span, help_)
    if definition.default is not None and definition.many:
        message = f"the label `{name}` has `many`, so it cannot have a default"
        diagnostics.report("P016", message, name.span, "remove `default`")
    default = None if definition.default is None else str(definition.default)
    return Label(str(name), values, definition.many, default, definition.required)
