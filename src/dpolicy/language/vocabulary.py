"""The `units` and `schema` sections → looked-up units, their order, and the label vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpolicy.errors import InvalidValue
from dpolicy.language.diagnostics import Findings, suggestion
from dpolicy.language.model import Attribute, LabelStatement, PolicySet
from dpolicy.language.source import Word
from dpolicy.privacy.units import Unit, parse_period, within
from dpolicy.releases.labels import Label, Schema

#: Whose data a unit with a period protects where no unit without one is declared.
DEFAULT_ENTITY = "user"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What names in a policy can mean.

    `entities` and `covered` hold pairs (smaller, larger), of entities and of distinct units.
    Whether a rule on the larger implies one on the smaller depends on the relation too.
    """

    units: Mapping[str, Unit]
    entities: frozenset[tuple[str, str]]
    covered: frozenset[tuple[str, str]]
    schema: Schema

    def covers(self, larger: str, smaller: str) -> bool:
        """Whether each of the second entity belongs to one of the first."""
        return (smaller, larger) in self.entities


def read_vocabulary(policies: PolicySet, found: Findings) -> Vocabulary:
    """Look up every name of the `units` and `schema` sections."""
    units = _units(policies, found)
    _check_categories(policies, found)
    _check_attributes(policies, found)
    labels = {str(name): _label(name, said, found) for name, said in policies.labels.items()}
    schema = Schema(frozenset(map(str, policies.attributes)), labels)
    entities = _entities_covered(policies, found)
    _check_partitions(policies, smallest(units, entities), found)
    return Vocabulary(units, entities, _covered(units, entities), schema)


def _units(policies: PolicySet, found: Findings) -> dict[str, Unit]:
    units = {}
    for name, said in policies.units.items():
        period = None
        if said.period is not None:
            try:
                period = parse_period(said.period)
            except InvalidValue as error:
                span = said.period.span if isinstance(said.period, Word) else name.span
                shown, _, help_ = error.message.partition("; help: ")
                found("P013", shown, span, help_ or "for example `month` or `sliding 30 days`")
        relation = said.relation or policies.accounting.relation
        units[str(name)] = Unit(str(name), _entity(name, policies, found), period, relation)
    return units


def _entity(name: Word, policies: PolicySet, found: Findings) -> str:
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
        found("P018", shown, name.span, f"say `of`: one of {choices}")
    return whole[0] if whole else DEFAULT_ENTITY


def _entities_covered(policies: PolicySet, found: Findings) -> frozenset[tuple[str, str]]:
    """Pairs (smaller, larger) of entities, closed under going on."""
    closed = set()
    for name, said in policies.units.items():
        for word in (*said.covers, *([said.of] if said.of is not None else [])):
            if word not in policies.units:
                shown = f"there is no unit `{word}`"
                found("P020", shown, word.span, suggestion(word, policies.units))
            elif said.period is not None and word in said.covers:
                shown = f"`{name}` has a period, so the calendar says what it covers"
                found("P017", shown, word.span, "say `of` whom it is, and let that unit cover")
            elif policies.units[word].period is not None:
                shown = f"`{word}` has a period, so it is not somebody to cover or be of"
                found("P017", shown, word.span, "name a unit without a period")
            elif word in said.covers:
                closed.add((str(word), str(name)))
    return _closed(closed, policies, found)


def _closed(
    stated: set[tuple[str, str]], policies: PolicySet, found: Findings
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
        found("P014", shown, circle[0].span, "remove one of the `covers`")
    return frozenset(closed)


def _covered(
    units: Mapping[str, Unit], entities: frozenset[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    return frozenset(
        (a.name, b.name)
        for a in units.values()
        for b in units.values()
        if a.name != b.name
        and (a.entity == b.entity or (a.entity, b.entity) in entities)
        and within(a.period, b.period)
    )


def _check_categories(policies: PolicySet, found: Findings) -> None:
    for category in policies.categories.values():
        _check_level(category.risk, policies.risk_levels, "risk level", found)
    used = {
        c for a in policies.attributes.values() for names in a.memberships.values() for c in names
    }
    for name in policies.categories:
        if name not in used:
            shown = f"no attribute belongs to the category `{name}`"
            found("P101", shown, name.span, "its rules can never match; remove it or use it")


def _check_attributes(policies: PolicySet, found: Findings) -> None:
    for attribute in policies.attributes.values():
        _check_level(attribute.risk, policies.risk_levels, "risk level", found)
        _check_memberships(attribute, policies, found)


def _check_memberships(attribute: Attribute, policies: PolicySet, found: Findings) -> None:
    seen: set[str] = set()
    for level, categories in attribute.memberships.items():
        _check_level(level, policies.membership_levels, "membership level", found)
        for word in categories:
            if word not in policies.categories:
                shown = f"there is no category `{word}`"
                found("P022", shown, word.span, suggestion(word, policies.categories))
            if word in seen:
                found("P010", f"`{word}` is named twice for this attribute", word.span, None)
            seen.add(word)


def _check_level(word: Word | None, known: tuple[str, ...], what: str, found: Findings) -> None:
    if word and word not in known:  # the empty word stands for one that has been told already
        found("P024", f"there is no {what} `{word}`", word.span, suggestion(word, known))


def smallest(units: Mapping[str, Unit], entities: frozenset[tuple[str, str]]) -> frozenset[str]:
    """The entities that cover no other."""
    larger = {above for _, above in entities}
    return frozenset(unit.entity for unit in units.values()) - larger


def _check_partitions(policies: PolicySet, owners: frozenset[str], found: Findings) -> None:
    for name, partition in policies.partitions.items():
        if partition.first is not None and partition.last is not None:
            if partition.first > partition.last:
                found("P015", f"the range of `{name}` is empty", name.span, "swap `from` and `to`")
        elif partition.values is not None and len(set(partition.values)) < len(partition.values):
            found("P010", f"a value of `{name}` stands there twice", name.span, None)
        if partition.of is not None and partition.of not in policies.units:
            shown = f"there is no unit `{partition.of}`"
            found("P020", shown, partition.of.span, suggestion(partition.of, policies.units))
        elif partition.of is not None and policies.units[partition.of].period is not None:
            shown = f"`{partition.of}` has a period, so it is not somebody to have a value for ever"
            found("P017", shown, partition.of.span, "name a unit without a period")
        elif partition.of is None and len(owners) > 1:
            shown = f"`{name}` does not say whose it is, so it splits no rule"
            choices = ", ".join(f"`{owner}`" for owner in sorted(owners)[:5])
            found("P107", shown, name.span, f"say `of`: one of {choices}")


def _label(name: Word, said: LabelStatement, found: Findings) -> Label:
    values = tuple(map(str, said.values)) if said.values else None
    if (said.values is None) != said.text:
        shown = f"the label `{name}` needs either `values` or `text: true`"
        found("P016", shown, name.span, None)
    if values and len(set(values)) < len(values):
        found("P010", f"a value of `{name}` stands there twice", name.span, None)
    if said.default is not None and values and said.default not in values:
        shown = f"the default `{said.default}` is not a value of `{name}`"
        found("P016", shown, said.default.span, suggestion(said.default, values))
    if said.default is not None and said.many:
        found("P016", f"the label `{name}` takes many values, so none by default", name.span, None)
    default = None if said.default is None else str(said.default)
    return Label(str(name), values, said.many, default, said.required)
