"""Naive twin of the prover: all mechanisms of a small vocabulary, all vertices, all subsets.

It has no implication check, no index, no pruning and no simplex method. It lists every mechanism
input, evaluates every rule on it, and solves the linear programme by trying all vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, product

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.expression import Predicate, matches
from dpolicy.releases.release_schema import PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.rules.rule import Rule

KINDS = ("declared", "gaussian", "laplace")

#: The limit of a rule on a sum of losses; None if it has none.
Limit = Callable[[Rule], Fraction | None]


def all_inputs(policy: CompiledPolicy) -> Iterator[PredicateInput]:
    """Yield every mechanism input; labels have one value or are missing."""
    names = sorted(policy.schema.attributes)
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
    labels = policy.schema.labels.values()
    choices = [
        (*(label.values or ()), *([None] if label.may_be_missing else [])) for label in labels
    ]
    for attributes, kind, chosen in product(list(subsets), KINDS, list(product(*choices))):
        values = {
            label.name: value
            for label, value in zip(labels, chosen, strict=True)
            if value is not None
        }
        yield PredicateInput(attributes, values, kind)


def matched_rules(policy: CompiledPolicy, scope: Predicate) -> set[frozenset[int]]:
    """Return the sets of cumulative rules that allowed mechanisms in the scope match."""
    rules = list(policy.cumulative.rules)
    sets = set()
    for own in all_inputs(policy):
        try:
            answers = [(r.number, [matches(p, own) for p in r.predicates]) for r in rules]
            numbers = [number for number, parts in answers if all(parts)]
            inside = matches(scope, own)
        except PredicateFailed:
            continue  # the decision point denies it
        if inside and numbers:
            sets.add(frozenset(numbers))
    return sets


def smallest_bound(
    policy: CompiledPolicy, scope: Predicate, units: frozenset[str], limit: Limit
) -> Fraction | None:
    """Return the least cost of a fractional cover by rules of the units; None if there is none."""
    limits = _limits(policy, units, limit)
    atoms = {atom.intersection(limits) for atom in matched_rules(policy, scope)}
    if not all(atoms):
        return None
    return min(_vertex_costs(sorted(atoms, key=sorted), limits), default=Fraction(0))


def _limits(policy: CompiledPolicy, units: frozenset[str], limit: Limit) -> dict[int, Fraction]:
    limits = {}
    for rule in policy.cumulative.rules:
        own = limit(rule)
        if rule.unit in units and own is not None:
            limits[rule.number] = own
    return limits


def _vertex_costs(
    atoms: Sequence[frozenset[int]], limits: Mapping[int, Fraction]
) -> Iterator[Fraction]:
    """Yield the cost of every vertex of the covers."""
    rules = sorted(set(chain.from_iterable(atoms)))
    rows = [([Fraction(r in atom) for r in rules], Fraction(1)) for atom in atoms]
    rows += [([Fraction(r == own) for r in rules], Fraction(0)) for own in rules]
    for tight in combinations(rows, len(rules)):
        weights = solve([row for row, _ in tight], [right for _, right in tight])
        if weights is not None and all(
            sum(a * x for a, x in zip(row, weights, strict=True)) >= right for row, right in rows
        ):
            yield sum((limits[r] * x for r, x in zip(rules, weights, strict=True)), Fraction(0))


def solve(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction] | None:
    """Return the solution of a square system, or None if there is no single one."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(len(rows)):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [entry / rows[column][column] for entry in rows[column]]
        for i, row in enumerate(rows):
            if i != column and row[column]:
                factor = row[column]
                rows[i] = [x - factor * y for x, y in zip(row, rows[column], strict=True)]
    return [row[-1] for row in rows]


def largest_whole_history(
    policy: CompiledPolicy, scope: Predicate, units: frozenset[str], limit: Limit
) -> int:
    """Return the largest sum of whole losses of the atoms, over all that every rule admits."""
    limits = _limits(policy, units, limit)
    atoms = sorted((a.intersection(limits) for a in matched_rules(policy, scope)), key=sorted)
    best = 0
    stack: list[tuple[int, int, dict[int, Fraction]]] = [(0, 0, dict(limits))]
    while stack:
        position, total, left = stack.pop()
        best = max(best, total)
        if position == len(atoms):
            continue
        atom = atoms[position]
        for amount in range(int(min(left[rule] for rule in atom)) + 1):
            rest = {r: value - amount if r in atom else value for r, value in left.items()}
            stack.append((position + 1, total + amount, rest))
    return best


def cheapest_whole_cover(
    policy: CompiledPolicy,
    scope: Predicate,
    units: frozenset[str],
    costs: Callable[[Rule], tuple[Fraction, Fraction] | None],
) -> tuple[Fraction, Fraction] | None:
    """Return the least (Σε, Σδ) of a set of rules that contains the scope, over all sets."""
    rules = {r.number: costs(r) for r in policy.cumulative.rules if r.unit in units}
    usable = {number: cost for number, cost in rules.items() if cost is not None}
    atoms = matched_rules(policy, scope)
    sets = chain.from_iterable(combinations(usable, size) for size in range(len(usable) + 1))
    totals = [
        (sum(usable[r][0] for r in chosen), sum(usable[r][1] for r in chosen))
        for chosen in sets
        if all(atom & set(chosen) for atom in atoms)
    ]
    return min(((Fraction(a), Fraction(b)) for a, b in totals), default=None)
