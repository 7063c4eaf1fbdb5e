"""The `units` and `schema` sections → looked-up units, their order, and the label vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpolicy.errors import InvalidValue
from dpolicy.policy.model import Attribute, LabelStatement, PolicySet
from dpolicy.privacy.units.privacy_units import PrivacyUnit, parse_period, period_within
from dpolicy.releases.release_schema import Label, ReleaseSchema
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.did_you_mean import suggest
from dpolicy.text.yaml_reader import LocatedText

#: Whose data a unit with a period protects where no unit without one is declared.
DEFAULT_ENTITY = "user"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What names in a policy can mean.

    `entities` and `covered` hold pairs (smaller, larger), of entities and of distinct units.
    Whether a rule on the larger implies one on the smaller depends on the relation too.
    """

    units: Mapping[str, PrivacyUnit]
    entities: frozenset[tuple[str, str]]
    covered: frozenset[tuple[str, str]]
    schema: ReleaseSchema

    def covers(self, larger: str, smaller: str) -> bool:
        """Whether each of the second entity belongs to one of the first."""
        return (smaller, larger) in self.entities


def read_vocabulary(policies: PolicySet, diagnostics: DiagnosticCollector) -> Vocabulary:
    """Look up every name of the `units` and `schema` sections."""
    units = _units(policies, diagnostics)
    _check_categories(policies, diagnostics)
    _check_attributes(policies, diagnostics)
    labels = {str(name): _label(name, said, diagnostics) for name, said in policies.labels.items()}
    schema = ReleaseSchema(frozenset(map(str, policies.attributes)), labels)
    entities = _entities_covered(policies, diagnostics)
    _check_partitions(policies, smallest_entities(units, entities), diagnostics)
    return Vocabulary(units, entities, _covered(units, entities), schema)


def _units(policies: PolicySet, diagnostics: DiagnosticCollector) -> dict[str, PrivacyUnit]:
    units = {}
    for name, said in policies.units.items():
        period = None
        if said.period is not None:
            try:
                period = parse_period(said.period)
            except InvalidValue as error:
                span = said.period.span if isinstance(said.period, LocatedText) else name.span
                shown, _, help_ = error.message.partition("; help: ")
                diagnostics.report(
                    "P013", shown, span, help_ or "for example `month` or `sliding 30 days`"
                )
        relation = said.relation or policies.accounting.relation
        units[str(name)] = PrivacyUnit(
            str(name), _entity(name, policies, diagnostics), period, relation
        )
    return units


def _entity(name: LocatedText, policies: PolicySet, diagnostics: DiagnosticCollector) -> str:
    """Whose data a unit is: what it says, what its name says, or the only one there is."""
    said = policies.units[name]
    if said.of is not None:
        return str(said.of)
    if said.period is None:
        return str(name)
    whole = [str(other) for other, unit in policies.units.items() if unit.period is None]
    named = [other for other in whole if name.startswith(f"{other}-")]
    if named:
        return max(named, key=len)
    if len(whole) > 1:
        shown = f"`{name}` does not say whose data it is"
        choices = ", ".join(f"`{other}`" for other in whole[:5])
        diagnostics.report("P018", shown, name.span, f"say `of`: one of {choices}")
    return whole[0] if whole else DEFAULT_ENTITY


def _entities_covered(
    policies: PolicySet, diagnostics: DiagnosticCollector
) -> frozenset[tuple[str, str]]:
    """Pairs (smaller, larger) of entities, closed under going on."""
    closed = set()
    for name, said in policies.units.items():
        for word in (*said.covers, *([said.of] if said.of is not None else [])):
            if word not in policies.units:
                shown = f"there is no unit `{word}`"
                diagnostics.report("P020", shown, word.span, suggest(word, policies.units))
            elif said.period is not None and word in said.covers:
                shown = f"`{name}` has a period, so the calendar says what it covers"
                diagnostics.report(
                    "P017", shown, word.span, "say `of` whom it is, and let that unit cover"
                )
            elif policies.units[word].period is not None:
                shown = f"`{word}` has a period, so it is not somebody to cover or be of"
                diagnostics.report("P017", shown, word.span, "name a unit without a period")
            elif word in said.covers:
                closed.add((str(word), str(name)))
    return _closed(closed, policies, diagnostics)


def _closed(
    stated: set[tuple[str, str]], policies: PolicySet, diagnostics: DiagnosticCollector
) -> frozenset[tuple[str, str]]:
    """The pairs and all that follow from them; units that come back to themselves are reported."""
    larger: dict[str, list[str]] = {}
    for smaller, above in sorted(stated):
        larger.setdefault(smaller, []).append(above)
    closed = set()
    for start in larger:
        waiting, reached = [start], set[str]()
        while waiting:
            fresh = [above for above in larger.get(waiting.pop(), ()) if above not in reached]
            reached.update(fresh)
            waiting += fresh
        closed |= {(start, above) for above in reached}
    circle = [name for name in policies.units if (str(name), str(name)) in closed]
    if circle:
        through = ", ".join(f"`{name}`" for name in circle[1:5])
        shown = f"`{circle[0]}` covers itself" + (f", by way of {through}" if through else "")
        diagnostics.report("P014", shown, circle[0].span, "remove one of the `covers`")
    return frozenset(closed)


def _covered(
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
            shown = f"no attribute belongs to the category `{name}`"
            diagnostics.report(
                "P101", shown, name.span, "its rules can never match; remove it or use it"
            )


def _check_attributes(policies: PolicySet, diagnostics: DiagnosticCollector) -> None:
    for attribute in policies.attributes.values():
        _check_level(attribute.risk, policies.risk_levels, "risk level", diagnostics)
        _check_memberships(attribute, policies, diagnostics)


def _check_memberships(
    attribute: Attribute, policies: PolicySet, diagnostics: DiagnosticCollector
) -> None:
    seen: set[str] = set()
    for level, categories in attribute.memberships.items():
        _check_level(level, policies.membership_levels, "membership level", diagnostics)
        for word in categories:
            if word not in policies.categories:
                shown = f"there is no category `{word}`"
                diagnostics.report("P022", shown, word.span, suggest(word, policies.categories))
            if word in seen:
                diagnostics.report(
                    "P010", f"`{word}` is named twice for this attribute", word.span, None
                )
            seen.add(word)


def _check_level(
    word: LocatedText | None,
    known_names: tuple[str, ...],
    what: str,
    diagnostics: DiagnosticCollector,
) -> None:
    if word and word not in known_names:  # the empty word stands for one that has been told already
        diagnostics.report(
            "P024", f"there is no {what} `{word}`", word.span, suggest(word, known_names)
        )


def smallest_entities(
    units: Mapping[str, PrivacyUnit], entities: frozenset[tuple[str, str]]
) -> frozenset[str]:
    """The entities that cover no other."""
    larger = {above for _, above in entities}
    return frozenset(unit.entity for unit in units.values()) - larger


def _check_partitions(
    policies: PolicySet, owners: frozenset[str], diagnostics: DiagnosticCollector
) -> None:
    for name, partition in policies.partitions.items():
        if partition.first is not None and partition.last is not None:
            if partition.first > partition.last:
                diagnostics.report(
                    "P015", f"the range of `{name}` is empty", name.span, "swap `from` and `to`"
                )
        elif partition.values is not None and len(set(partition.values)) < len(partition.values):
            diagnostics.report("P010", f"a value of `{name}` stands there twice", name.span, None)
        if partition.of is not None and partition.of not in policies.units:
            shown = f"there is no unit `{partition.of}`"
            diagnostics.report(
                "P020", shown, partition.of.span, suggest(partition.of, policies.units)
            )
        elif partition.of is not None and policies.units[partition.of].period is not None:
            shown = f"`{partition.of}` has a period, so it is not somebody to have a value for ever"
            diagnostics.report("P017", shown, partition.of.span, "name a unit without a period")
        elif partition.of is None and len(owners) > 1:
            shown = f"`{name}` does not say whose it is, so it splits no rule"
            choices = ", ".join(f"`{owner}`" for owner in sorted(owners)[:5])
            diagnostics.report("P107", shown, name.span, f"say `of`: one of {choices}")


def _label(
    name: LocatedText, definition: LabelStatement, diagnostics: DiagnosticCollector
) -> Label:
    values = tuple(map(str, definition.values)) if definition.values else None
    if (definition.values is None) != definition.text:
        shown = f"the label `{name}` needs either `values` or `text: true`"
        diagnostics.report("P016", shown, name.span, None)
    if values and len(set(values)) < len(values):
        diagnostics.report("P010", f"a value of `{name}` stands there twice", name.span, None)
    if definition.default is not None and values and definition.default not in values:
        shown = f"the default `{definition.default}` is not a value of `{name}`"
        diagnostics.report(
            "P016", shown, definition.default.span, suggest(definition.default, values)
        )
    if definition.default is not None and definition.many:
        diagnostics.report(
            "P016", f"the label `{name}` takes many values, so none by default", name.span, None
        )
    default = None if definition.default is None else str(definition.default)
    return Label(str(name), values, definition.many, default, definition.required)
