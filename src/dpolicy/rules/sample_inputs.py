"""A label vocabulary → sample mechanisms that tell most predicates apart without a solver."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.expression import Predicate, matches
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

#: Enough to refute nearly every false question, few enough to cost nothing.
SAMPLES = 256


def sample_predicate_inputs(schema: ReleaseSchema) -> list[PredicateInput]:
    """Sample mechanisms, the same every time: single attributes first, then random ones."""
    attributes = sorted(schema.attributes)
    random = Random(0)
    plain = _labels(schema, random, defaults=True)
    facts = [PredicateInput(labels=plain), PredicateInput(tuple(attributes), plain)]
    facts += [PredicateInput((a,), plain) for a in islice(attributes, SAMPLES // 4)]
    while len(facts) < SAMPLES:
        chosen = random.sample(attributes, min(len(attributes), random.choice((0, 1, 1, 2, 4))))
        labels = _labels(schema, random, defaults=False)
        kind = random.choice(tuple(MECHANISM_KINDS))
        facts.append(
            PredicateInput(tuple(sorted(chosen)), labels, kind, random.choice(("", "team")))
        )
    return facts


def _labels(
    schema: ReleaseSchema, random: Random, *, defaults: bool
) -> dict[str, str | tuple[str, ...]]:
    chosen: dict[str, str | tuple[str, ...]] = {}
    for name, label in schema.labels.items():
        if label.many:
            some = [v for v in label.values or ("text",) if random.random() < 0.5]
            chosen[name] = () if defaults else tuple(sorted(some))
        elif defaults and label.default is not None:
            chosen[name] = label.default
        else:
            chosen[name] = _value(label, random)
    return chosen


def _value(label: Label, random: Random) -> str:
    return random.choice(label.values) if label.values else random.choice(("text", "other"))


def truth_masks(predicate: Predicate, facts: Sequence[PredicateInput]) -> tuple[int, int]:
    """The bit masks of the facts that match, and of those on which there is no answer."""
    true = failed = 0
    for position, fact in enumerate(facts):
        try:
            true |= matches(predicate, fact) << position
        except PredicateFailed:
            failed |= 1 << position
    return true, failed
