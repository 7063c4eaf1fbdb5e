"""Tightening: whether a policy can only deny more than another one, on the same ledger.

Every rule of the old policy needs one rule of the new policy that implies it, as in pruning (theory
1.5, A). Then the new policy allows a release only if the old one does, with any balances. A
cover by several rules is not enough: a release that matches one of them is not compared with the
others, and imported releases may already exceed those (docs/theory/proofs.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from dpolicy.policy.model import PolicySet
from dpolicy.predicates.expression import (
    Always,
    Expression,
    Predicate,
    reads_attribute,
)
from dpolicy.predicates.implication.implication_check import conjunction, disjunction
from dpolicy.predicates.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Constant,
    HasLabel,
    LabelText,
    LabelTextList,
    Literals,
    Membership,
    Not,
    Quantifier,
    TextTest,
    Tree,
    children,
)
from dpolicy.privacy.thresholds import implies_bound
from dpolicy.rules.compiler import CompiledPolicy, CompiledSection
from dpolicy.rules.rule import Rule
from dpolicy.rules.scope_order import Preorder, ScopeComparer, order_units

#: Pairs of rules that are compared; beyond it, the answer is no.
MAX_PAIRS = 1_000_000


def only_tightens(old: CompiledPolicy | None, new: CompiledPolicy) -> bool:
    """Return True only if, on the same ledger, `old` allows every release that `new` allows.

    Return False if that cannot be established. Everything except the rules must be equal: another
    unit, label, partition, attribute or accounting can charge releases differently, and so can the
    accounting defaults of another version, which are not part of the text. A predicate
    that can fail must stay, because a predicate that fails denies a release even if it has no rule.
    A rule of `new` must cover no mechanism that `old` denies as uncovered. Limits on the size of a
    release (R008) are not compared.
    """
    if old is None or _without_rules(old) != _without_rules(new):
        return False
    if old.accounting.defaults != new.accounting.defaults:
        return False
    sections = list(zip(old.sections, new.sections, strict=True))
    if not all(_keeps_failures(*pair) for pair in sections):
        return False
    comparer = ScopeComparer(new.schema)
    if not _covers_no_more(old, new, comparer):
        return False
    comparisons = [(before, _Comparison(new, after, comparer)) for before, after in sections]
    return all(
        comparison.implies_all(_kept_rules(before)) and comparison.keeps_witnesses(before)
        for before, comparison in comparisons
    )


def _without_rules(policy: CompiledPolicy) -> PolicySet:
    return replace(policy.policy_set, name=None, policies=(), each_release=())


def _kept_rules(section: CompiledSection) -> list[Rule]:
    return [section.rules[int(number)] for number in section.pruning.kept.nonzero()[0]]


def _keeps_failures(old: CompiledSection, new: CompiledSection) -> bool:
    """Return whether every predicate of the old section that can fail is one of the new section."""
    removed = _evaluated_predicates(old) - _evaluated_predicates(new)
    return all(never_fails(predicate) for predicate in removed)


def _evaluated_predicates(section: CompiledSection) -> frozenset[Predicate]:
    settings = chain.from_iterable(section.rules.axes)
    bases = (base.predicate for base in section.rules.bases)
    return frozenset(chain(bases, (setting.predicate for setting in settings)))


def never_fails(predicate: Predicate) -> bool:
    """Return True only if the predicate has an answer for every mechanism, also a recorded one.

    A label can be missing, and of a recorded release it can be unknown; arithmetic can divide by
    zero or overflow; quantifiers can take too many steps.
    """
    return not isinstance(predicate, Expression) or not any(
        isinstance(node, Arithmetic | LabelText | LabelTextList | HasLabel | Quantifier)
        for node in _nodes(predicate.tree)
    )


@lru_cache(maxsize=4096)
def _fails_with(smaller: Predicate, larger: Predicate) -> bool:
    """Return whether `larger` matches or fails wherever `smaller`, which lies inside it, fails."""
    if smaller == larger or isinstance(larger, Always) or never_fails(smaller):
        return True
    if not (isinstance(smaller, Expression) and isinstance(larger, Expression)):
        return False
    label = _only_label(smaller.tree)
    return label is not None and label == _only_label(larger.tree)


def _only_label(tree: Tree) -> str | None:
    """Return the label that every test of a predicate reads, and that is all they read, or None.

    Such a predicate fails exactly where the label has no value. `has` does not fail there.
    """
    if isinstance(tree, Not | AllOf | AnyOf):
        labels = {_only_label(child) for child in children(tree)}
        return labels.pop() if len(labels) == 1 else None
    if not isinstance(tree, Comparison | Membership | TextTest):
        return None
    names: set[str] = set()
    for operand in children(tree):
        if isinstance(operand, LabelText | LabelTextList):
            names.add(operand.name)
        elif not isinstance(operand, Constant | Literals):
            return None
    return names.pop() if len(names) == 1 else None


def _nodes(tree: Tree) -> Iterator[Tree]:
    yield tree
    for child in children(tree):
        yield from _nodes(child)


def _covers_no_more(old: CompiledPolicy, new: CompiledPolicy, comparer: ScopeComparer) -> bool:
    """Return whether each mechanism that a cumulative rule of `new` matches has a rule in `old`."""
    if new.accounting.allow_uncovered:
        return True
    scopes = dict.fromkeys(_scope(rule) for rule in _kept_rules(old.cumulative))
    if Always() in scopes:
        return True
    added = dict.fromkeys(_scope(rule) for rule in _kept_rules(new.cumulative)).keys() - scopes
    everything = disjunction(list(scopes))
    return all(comparer.is_inside(scope, everything) for scope in added)


def _scope(rule: Rule) -> Predicate:
    return conjunction(rule.predicates)


class _Comparison:
    """Comparison of old rules with the kept rules of one section of the new policy."""

    def __init__(
        self, policy: CompiledPolicy, section: CompiledSection, comparer: ScopeComparer
    ) -> None:
        self.section, self.comparer = section, comparer
        self.rules = _kept_rules(section)
        self.by_scope = {(rule.predicates, rule.unit): rule for rule in section.rules}
        self.partitions = tuple(map(str, policy.partitions))
        self.unit_names = sorted(policy.units)
        self.units: Preorder = order_units(self.unit_names, policy.checked_policy_set)

    def implies_all(self, rules: Sequence[Rule]) -> bool:
        """Return whether each rule is implied by one rule of the new policy."""
        remaining = [rule for rule in rules if not self._is_tightened(rule)]
        if len(remaining) * len(self.rules) > MAX_PAIRS:
            return False
        return all(any(self._implies(own, rule) for own in self.rules) for rule in remaining)

    def keeps_witnesses(self, before: CompiledSection) -> bool:
        """Return whether records that a witness counts for a pruned rule stay charged to it.

        A record on which a predicate of a pruned rule fails is charged to the witness, even if it
        does not match the witness (theory/records).
        """
        pairs = ((rule, before.implied_by(rule)) for rule in before.rules)
        return all(
            witness is None
            or all(map(_fails_with, rule.predicates, witness.predicates))
            or self._keeps_witness(rule, witness)
            for rule, witness in pairs
        )

    def _keeps_witness(self, old: Rule, old_witness: Rule) -> bool:
        own = self.by_scope.get((old.predicates, old.unit))
        witness = None if own is None else self.section.implied_by(own)
        return (
            witness is not None
            and (witness.predicates, witness.unit) == (old_witness.predicates, old_witness.unit)
            and implies_bound(witness.bound, old_witness.bound)
        )

    def _is_tightened(self, old: Rule) -> bool:
        """Return whether the rule with the same scope and unit has a bound that implies it."""
        own = self.by_scope.get((old.predicates, old.unit))
        return own is not None and implies_bound(own.bound, old.bound)

    def _implies(self, own: Rule, old: Rule) -> bool:
        """Return whether an enforced rule of another scope implies the old rule.

        Certified values of loss distributions are monotone only up to their looseness, so they
        are not compared between scopes (theory/exact, statement 6).
        """
        return (
            own.bound.exact is None
            and implies_bound(own.bound, old.bound)
            and self._keeps_units(own, old)
            and self._keeps_blocks(own, old)
            and self._contains_scope(own, old)
        )

    def _keeps_units(self, own: Rule, old: Rule) -> bool:
        return self.units.leq(self.unit_names.index(old.unit), self.unit_names.index(own.unit))

    def _keeps_blocks(self, own: Rule, old: Rule) -> bool:
        """Return whether every block of `old` lies inside one block of `own` (P8)."""
        return all(
            any(reads_attribute(p, name) for p in own.predicates)
            for name in self.partitions
            if any(reads_attribute(p, name) for p in old.predicates)
        )

    def _contains_scope(self, own: Rule, old: Rule) -> bool:
        """Return whether every mechanism that may match `old` may match `own`.

        A recorded release may match a predicate that fails on it. So predicates of `own` must be
        predicates of `old`, or follow from those that never fail.
        """
        added = [p for p in own.predicates if p not in old.predicates]
        certain = [p for p in old.predicates if never_fails(p)]
        return self.comparer.is_inside(conjunction(certain), conjunction(added))
