"""Turns predicates into what they can tell apart about a mechanism: finitely many questions.

A value that no constant names and no text function looks into is like every other such value, so
one of them stands for all; of the unnamed values in a list only the number matters, and beyond a
certain number not even that. This is exact: permuting unnamed values changes no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, count, islice

from dpolicy.predicates.implication.kleene import Key, ListUniverse, list_key
from dpolicy.predicates.tree import (
    AttributeList,
    Comparison,
    Conditional,
    Constant,
    HasLabel,
    LabelText,
    LabelTextList,
    Literals,
    MechanismField,
    Membership,
    Quantifier,
    QuantifierVariable,
    SizeOf,
    TextTest,
    Tree,
    children,
)
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.release_schema import ReleaseSchema

#: A list of free texts is searched up to this length; `size(x) > 1000` on one is not worth more.
FREE_LIMIT = 64


@dataclass(slots=True)
class TextUsage:
    """What predicates do with one source of text (`attributes`, `by`, `labels.x` …)."""

    constants: set[str] = field(default_factory=set)
    linked: set[str] = field(default_factory=set)  # sources it is compared with
    cut_up: bool = False  # ordered, measured, or searched for parts
    greatest_size: int = -1  # the greatest number its length is compared with
    counted: bool = False  # its length is used in some other way


@dataclass(frozen=True, slots=True)
class CaseSpace:
    """All that a search must branch over, or why it cannot."""

    universes: dict[str, ListUniverse]
    options: dict[Key, tuple[str | int | bool | None, ...]]
    obstacle: str | None


def build_case_space(trees: Iterable[Tree], schema: ReleaseSchema) -> CaseSpace:
    """What the trees can tell apart about the mechanisms of a schema."""
    trees = tuple(trees)
    seen: dict[str, TextUsage] = {}
    for tree in trees:
        _observe(tree, (), seen)
    _share_constants(seen, schema)
    rank = max(map(_rank, trees))
    result = CaseSpace({}, {}, _obstacle(seen, schema))
    for source, what in sorted(seen.items()):
        # Free texts can all differ from every constant and from each other.
        free = [other for other in what.linked or {source} if _is_free_text(other, schema)]
        fresh = _fresh(len(free), what, 0)
        if _is_list(source, schema):
            _ask_list(source, what, possible_texts(source, schema), fresh, rank, result)
        else:
            _ask_text(source, what, schema, fresh, result)
    return result


def possible_texts(source: str, schema: ReleaseSchema) -> tuple[str, ...] | None:
    """The texts a source can hold, sorted; None where any text will do."""
    if source == "attributes":
        return tuple(sorted(schema.attributes))
    if source == "mechanism":
        return tuple(MECHANISM_KINDS)
    if source == "by":
        return None
    values = schema.labels[source.removeprefix("labels.")].values
    return None if values is None else tuple(sorted(set(values)))


def _is_list(source: str, schema: ReleaseSchema) -> bool:
    if source.startswith("labels."):
        return schema.labels[source.removeprefix("labels.")].many
    return source == "attributes"


def _is_free_text(source: str, schema: ReleaseSchema) -> bool:
    return possible_texts(source, schema) is None and not _is_list(source, schema)


def _rank(tree: Tree) -> int:
    """How many unnamed values `tree` can tell apart: its nesting of quantifiers, as in
    Ehrenfeucht-Fraïssé games; `exists_one` says as much as two of the others."""
    inside = max(map(_rank, children(tree)), default=0)
    if isinstance(tree, Quantifier):
        return inside + (2 if tree.quantifier == "exists_one" else 1)
    return inside


def _observe(tree: Tree, scope: tuple[Tree, ...], usage: dict[str, TextUsage]) -> None:
    """Note what `tree` does with each source."""
    match tree:
        case MechanismField() | LabelText() | AttributeList() | LabelTextList():
            usage.setdefault(_name(tree), TextUsage())
        case HasLabel(name):
            what = usage.setdefault(f"labels.{name}", TextUsage())
            what.greatest_size = max(what.greatest_size, 0)  # of a list: whether it is empty
        case Comparison("==" | "!=", left, right) | Membership(left, right):
            _compared([*_texts(left, scope), *_texts(right, scope)], usage)
        case Comparison(_, left, right) | TextTest(_, left, right):
            _cut_up([*_texts(left, scope), *_texts(right, scope)], usage)
        case SizeOf(operand) if not isinstance(operand, AttributeList | LabelTextList):
            _cut_up(_texts(operand, scope), usage)
        case _:
            pass
    _measured(tree, usage)
    if isinstance(tree, Quantifier):
        _observe(tree.over, scope, usage)
        _observe(tree.body, (*scope, tree.over), usage)
    else:
        for child in children(tree):
            _observe(child, scope, usage)


def _name(tree: MechanismField | LabelText | AttributeList | LabelTextList) -> str:
    match tree:
        case MechanismField(name):
            return name
        case LabelText(name):
            return f"labels.{name}"
        case _:
            return list_key(tree)


def _texts(tree: Tree, scope: tuple[Tree, ...]) -> list[Tree]:
    """The sources and constants that an operand's text, or a list's texts, can come from."""
    match tree:
        case QuantifierVariable(depth):
            return _texts(scope[depth], scope)
        case Conditional(_, first, second):
            return [*_texts(first, scope), *_texts(second, scope)]
        case Literals(items):
            return list(items)
        case Constant() | MechanismField() | LabelText() | AttributeList() | LabelTextList():
            return [tree]
        case _:
            return []


def _sources(texts: list[Tree]) -> list[str]:
    return [
        _name(text)
        for text in texts
        if isinstance(text, MechanismField | LabelText | AttributeList | LabelTextList)
    ]


def _compared(texts: list[Tree], usage: dict[str, TextUsage]) -> None:
    sources = _sources(texts)
    constants = {text.value for text in texts if isinstance(text, Constant)}
    for source in sources:
        what = usage.setdefault(source, TextUsage())
        what.constants.update(value for value in constants if isinstance(value, str))
        what.linked.update(sources)


def _cut_up(texts: list[Tree], usage: dict[str, TextUsage]) -> None:
    for source in _sources(texts):
        usage.setdefault(source, TextUsage()).cut_up = True


def _measured(tree: Tree, usage: dict[str, TextUsage]) -> None:
    """Note the lengths of lists: compared with a constant, or used freely."""
    against: dict[int, int] = {}
    if isinstance(tree, Comparison):
        for one, other in ((tree.left, tree.right), (tree.right, tree.left)):
            if isinstance(other, Constant) and isinstance(other.value, int):
                against[id(one)] = other.value
    for child in children(tree):
        if isinstance(child, SizeOf) and isinstance(child.operand, AttributeList | LabelTextList):
            what = usage.setdefault(list_key(child.operand), TextUsage())
            if id(child) in against:
                what.greatest_size = max(what.greatest_size, against[id(child)])
            else:
                what.counted = True


def _share_constants(usage: dict[str, TextUsage], schema: ReleaseSchema) -> None:
    """Sources that are compared with each other see each other's constants and values."""
    for _ in usage:  # as often as the longest chain of comparisons can be
        for one, other in combinations(sorted(usage), 2):
            if other in usage[one].linked or one in usage[other].linked:
                together = usage[one].linked | usage[other].linked
                usage[one].linked, usage[other].linked = set(together), set(together)
    for what in usage.values():
        if len(what.linked) > 1:
            for other in what.linked:
                what.constants.update(possible_texts(other, schema) or ())
    for what in usage.values():
        for other in what.linked:
            what.constants.update(usage[other].constants)


def _obstacle(usage: dict[str, TextUsage], schema: ReleaseSchema) -> str | None:
    for source, what in sorted(usage.items()):
        if possible_texts(source, schema) is not None:
            continue
        if what.cut_up:
            return f"`{source}` is any text, and the predicates look into it"
        if what.counted or what.greatest_size > FREE_LIMIT:
            return f"`{source}` can hold any number of texts, and the predicates count them"
        lists = [other for other in what.linked if _is_list(other, schema)]
        if sum(possible_texts(other, schema) is None for other in lists) > 1:
            return f"{' and '.join(f'`{other}`' for other in sorted(lists))} are compared"
    return None


def _fresh(number: int, what: TextUsage, start: int) -> tuple[str, ...]:
    """Texts that nobody mentions."""
    unused = (f"text-{index}" for index in count(1))
    wanted = islice((text for text in unused if text not in what.constants), start + number)
    return tuple(wanted)[start:]


def _ask_list(
    source: str,
    what: TextUsage,
    domain: tuple[str, ...] | None,
    fresh: tuple[str, ...],
    rank: int,
    result: CaseSpace,
) -> None:
    enough = max(rank, what.greatest_size + 1)  # more unnamed values than this look like this many
    if domain is None:
        named = (*sorted(what.constants), *fresh)
        alike = _fresh(enough, what, len(fresh))
    else:
        named = tuple(value for value in domain if what.cut_up or value in what.constants)
        alike = tuple(value for value in domain if value not in set(named))
        alike = alike if what.counted else alike[:enough]
    result.universes[source] = ListUniverse(named, alike)
    for value in named:
        result.options[source, value] = (True, False)
    if alike:
        result.options[source, None] = tuple(range(len(alike) + 1))


def _ask_text(
    source: str, what: TextUsage, schema: ReleaseSchema, fresh: tuple[str, ...], result: CaseSpace
) -> None:
    domain = possible_texts(source, schema)
    values: list[str | int | bool | None] = []
    if domain is None:
        values.extend((*sorted(what.constants), *fresh))
    else:
        values.extend(v for v in domain if what.cut_up or v in what.constants)
        values.extend(_first(v for v in domain if v not in values))
    if source.startswith("labels."):
        label = schema.labels[source.removeprefix("labels.")]
        if label.may_be_missing:
            values.append(None)
    result.options[source, None] = tuple(values)


def _first(values: Iterable[str]) -> Iterator[str]:
    return islice(iter(values), 1)
