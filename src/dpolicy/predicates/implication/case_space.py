"""Case space: the finitely many cases that predicates can distinguish.

Predicates cannot distinguish values that they neither name nor inspect with a text function, so
one such value represents all. Of the unnamed values of a list only their number matters, up to a
bound. This is exact: permuting unnamed values changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable
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

#: Maximum size of a list of free texts in the search.
MAX_FREE_TEXTS = 64


@dataclass(slots=True)
class TextUsage:
    """Use of one source of text (`attributes`, `by`, `labels.x` …) by predicates."""

    constants: set[str] = field(default_factory=set)
    linked: set[str] = field(default_factory=set)  # sources that it is compared with
    inspected: bool = False  # used in an order, a length or a text test
    greatest_size: int = -1  # greatest number that its length is compared with
    counted: bool = False  # its length is used in another way


@dataclass(frozen=True, slots=True)
class CaseSpace:
    """Facts that a search branches over; `obstacle` is the reason if it cannot."""

    universes: dict[str, ListUniverse]
    options: dict[Key, tuple[str | int | bool | None, ...]]
    obstacle: str | None


def build_case_space(trees: Iterable[Tree], schema: ReleaseSchema) -> CaseSpace:
    """Build the cases that the trees can distinguish among the mechanisms of a schema."""
    trees = tuple(trees)
    usages: dict[str, TextUsage] = {}
    for tree in trees:
        _collect_usage(tree, (), usages)
    _share_constants(usages, schema)
    rank = max(map(_quantifier_rank, trees))
    case_space = CaseSpace({}, {}, _find_obstacle(usages, schema))
    for source, usage in sorted(usages.items()):
        # Free texts can differ from every constant and from each other.
        free = [other for other in usage.linked or {source} if _is_free_text(other, schema)]
        new_texts = _generate_unused_texts(len(free), usage, 0)
        if _is_list(source, schema):
            domain = possible_texts(source, schema)
            _add_list(source, usage, domain, new_texts, rank, case_space)
        else:
            _add_text(source, usage, schema, new_texts, case_space)
    return case_space


def possible_texts(source: str, schema: ReleaseSchema) -> tuple[str, ...] | None:
    """Return the possible texts of a source, or None if any text is possible."""
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


def _quantifier_rank(tree: Tree) -> int:
    """Return how many unnamed values a tree can distinguish: its quantifier rank, as in
    Ehrenfeucht-Fraïssé games. `exists_one` counts as two quantifiers.
    """
    inside = max(map(_quantifier_rank, children(tree)), default=0)
    if isinstance(tree, Quantifier):
        return inside + (2 if tree.quantifier == "exists_one" else 1)
    return inside


def _collect_usage(tree: Tree, scope: tuple[Tree, ...], usages: dict[str, TextUsage]) -> None:
    """Add the use of each source by a tree to `usages`."""
    match tree:
        case MechanismField() | LabelText() | AttributeList():
            usages.setdefault(_source_name(tree), TextUsage())
        case HasLabel(name) | LabelTextList(name):
            usage = usages.setdefault(f"labels.{name}", TextUsage())
            usage.greatest_size = max(usage.greatest_size, 0)  # of a list: whether it is empty
        case Comparison("==" | "!=", left, right) | Membership(left, right):
            _mark_compared([*_texts(left, scope), *_texts(right, scope)], usages)
        case Comparison(_, left, right) | TextTest(_, left, right):
            _mark_inspected([*_texts(left, scope), *_texts(right, scope)], usages)
        case SizeOf(operand) if not isinstance(operand, AttributeList | LabelTextList):
            _mark_inspected(_texts(operand, scope), usages)
        case _:
            pass
    _mark_sizes(tree, usages)
    if isinstance(tree, Quantifier):
        _collect_usage(tree.over, scope, usages)
        _collect_usage(tree.body, (*scope, tree.over), usages)
    else:
        for child in children(tree):
            _collect_usage(child, scope, usages)


def _source_name(tree: MechanismField | LabelText | AttributeList | LabelTextList) -> str:
    match tree:
        case MechanismField(name):
            return name
        case LabelText(name):
            return f"labels.{name}"
        case _:
            return list_key(tree)


def _texts(tree: Tree, scope: tuple[Tree, ...]) -> list[Tree]:
    """Return the sources and constants from which the texts of an operand can come."""
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
        _source_name(text)
        for text in texts
        if isinstance(text, MechanismField | LabelText | AttributeList | LabelTextList)
    ]


def _mark_compared(texts: list[Tree], usages: dict[str, TextUsage]) -> None:
    sources = _sources(texts)
    constants = {text.value for text in texts if isinstance(text, Constant)}
    for source in sources:
        usage = usages.setdefault(source, TextUsage())
        usage.constants.update(value for value in constants if isinstance(value, str))
        usage.linked.update(sources)


def _mark_inspected(texts: list[Tree], usages: dict[str, TextUsage]) -> None:
    for source in _sources(texts):
        usages.setdefault(source, TextUsage()).inspected = True


def _mark_sizes(tree: Tree, usages: dict[str, TextUsage]) -> None:
    """Record the use of list lengths: compared with a constant, or used in another way."""
    compared_with: dict[int, int] = {}
    if isinstance(tree, Comparison):
        for operand, other in ((tree.left, tree.right), (tree.right, tree.left)):
            if isinstance(other, Constant) and isinstance(other.value, int):
                compared_with[id(operand)] = other.value
    for child in children(tree):
        if isinstance(child, SizeOf) and isinstance(child.operand, AttributeList | LabelTextList):
            usage = usages.setdefault(list_key(child.operand), TextUsage())
            if id(child) in compared_with:
                usage.greatest_size = max(usage.greatest_size, compared_with[id(child)])
            else:
                usage.counted = True


def _share_constants(usages: dict[str, TextUsage], schema: ReleaseSchema) -> None:
    """Give sources that are compared with each other the constants and values of all of them."""
    for _ in usages:  # as many rounds as the longest chain of comparisons can need
        for first, second in combinations(sorted(usages), 2):
            if second in usages[first].linked or first in usages[second].linked:
                union = usages[first].linked | usages[second].linked
                usages[first].linked, usages[second].linked = set(union), set(union)
    for usage in usages.values():
        if len(usage.linked) > 1:
            for other in usage.linked:
                usage.constants.update(possible_texts(other, schema) or ())
    for usage in usages.values():
        for other in usage.linked:
            usage.constants.update(usages[other].constants)


def _find_obstacle(usages: dict[str, TextUsage], schema: ReleaseSchema) -> str | None:
    """Return why a search is impossible, if it is."""
    for source, usage in sorted(usages.items()):
        if possible_texts(source, schema) is not None:
            continue
        if usage.inspected:
            return f"`{source}` can be any text, and the predicates inspect its content"
        if usage.counted or usage.greatest_size > MAX_FREE_TEXTS:
            return f"`{source}` can contain any number of texts, and the predicates count them"
        lists = [other for other in usage.linked if _is_list(other, schema)]
        if sum(possible_texts(other, schema) is None for other in lists) > 1:
            names = " and ".join(f"`{other}`" for other in sorted(lists))
            return f"{names} are compared with each other"
    return None


def _generate_unused_texts(number: int, usage: TextUsage, start: int) -> tuple[str, ...]:
    """Return texts that are not among the constants, after the first `start` ones."""
    candidates = (f"text-{index}" for index in count(1))
    unused = (text for text in candidates if text not in usage.constants)
    return tuple(islice(unused, start, start + number))


def _add_list(
    source: str,
    usage: TextUsage,
    domain: tuple[str, ...] | None,
    new_texts: tuple[str, ...],
    rank: int,
    case_space: CaseSpace,
) -> None:
    enough = max(rank, usage.greatest_size + 1)  # predicates cannot distinguish larger numbers
    if domain is None:
        named = (*sorted(usage.constants), *new_texts)
        unnamed = _generate_unused_texts(enough, usage, len(new_texts))
    else:
        named = tuple(value for value in domain if usage.inspected or value in usage.constants)
        unnamed = tuple(value for value in domain if value not in set(named))
        unnamed = unnamed if usage.counted else unnamed[:enough]
    case_space.universes[source] = ListUniverse(named, unnamed)
    for value in named:
        case_space.options[source, value] = (True, False)
    if unnamed:
        case_space.options[source, None] = tuple(range(len(unnamed) + 1))


def _add_text(
    source: str,
    usage: TextUsage,
    schema: ReleaseSchema,
    new_texts: tuple[str, ...],
    case_space: CaseSpace,
) -> None:
    domain = possible_texts(source, schema)
    values: list[str | int | bool | None] = []
    if domain is None:
        values.extend((*sorted(usage.constants), *new_texts))
    else:
        values.extend(v for v in domain if usage.inspected or v in usage.constants)
        others = [v for v in domain if v not in values]
        values.extend(others[:1])
    if source.startswith("labels."):
        label = schema.labels[source.removeprefix("labels.")]
        if label.may_be_missing:
            values.append(None)
    case_space.options[source, None] = tuple(values)
