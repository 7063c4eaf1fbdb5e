"""Sample predicate inputs of a schema, which distinguish most predicates without a solver."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.expression import Predicate, matches
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS
from dpolicy.releases.release_schema import Label, PredicateInput, ReleaseSchema

#: Number of samples: enough to refute nearly every false implication, cheap to evaluate.
SAMPLES = 256


def sample_predicate_inputs(schema: ReleaseSchema) -> list[PredicateInput]:
    """Return the same samples on every call: single attributes first, then random inputs."""
    attributes = sorted(schema.attributes)
    random = Random(0)
    plain = _labels(schema, random, defaults=True)
    inputs = [PredicateInput(labels=plain), PredicateInput(tuple(attributes), plain)]
    inputs += [PredicateInput((a,), plain) for a in islice(attributes, SAMPLES // 4)]
    while len(inputs) < SAMPLES:
        chosen = random.sample(attributes, min(len(attributes), random.choice((0, 1, 1, 2, 4))))
        labels = _labels(schema, random, defaults=False)
        kind = random.choice(tuple(MECHANISM_KINDS))
        inputs.append(
            PredicateInput(tuple(sorted(chosen)), labels, kind, random.choice(("", "team")))
        )
    return inputs


def _labels(
    schema: ReleaseSchema, random: Random, *, defaults: bool
) -> dict[str, str | tuple[str, ...]]:
    chosen: dict[str, str | tuple[str, ...]] = {}
    for name, label in schema.labels.items():
        if label.many:
            values = [v for v in label.values or ("text",) if random.random() < 0.5]
            chosen[name] = (label.values or ("text",))[:1] if defaults else tuple(sorted(values))
        elif defaults and label.default is not None:
            chosen[name] = label.default
        else:
            chosen[name] = _value(label, random)
    return chosen


def _value(label: Label, random: Random) -> str:
    return random.choice(label.values) if label.values else random.choice(("text", "other"))


def truth_masks(predicate: Predicate, inputs: Sequence[PredicateInput]) -> tuple[int, int]:
    """Return the bit masks of the inputs that match and of those on which evaluation fails."""
    true = failed = 0
    for position, predicate_input in enumerate(inputs):
        try:
            true |= matches(predicate, predicate_input) << position
        except PredicateFailed:
            failed |= 1 << position
    return true, failed
