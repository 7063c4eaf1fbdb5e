"""Typical mechanisms of a ledger: a `tuned-for` section from the releases that count as spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.events import from_bytes, release_body_in
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.release_archive import SPENDING_STATUSES
from dpolicy.policy.accounting.tuning_grammar import MAX_TYPICAL
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.shares.tuned_shares import mix_costs
from dpolicy.privacy.units.privacy_units import NeighbouringRelation


def typical_mechanisms(
    point: DecisionPoint, relation: NeighbouringRelation
) -> list[tuple[Mapping[str, Any], int]]:
    """Return the most frequent mechanisms with their numbers, the most frequent first.

    Mechanisms without a bound in Rényi orders or beside reserves are left out: no share of δ admits
    them.
    """
    counts: Counter[bytes] = Counter()
    parameters: dict[bytes, Mapping[str, Any]] = {}
    for fields in _spent_mechanisms(point):
        key = encode_canonical(fields)
        counts[key] += 1
        parameters[key] = fields
    ranked = sorted(counts, key=lambda key: (-counts[key], key))
    bounded = (key for key in ranked if _has_renyi_cost(parameters[key], relation))
    return [
        (parameters[key], counts[key]) for key, _ in zip(bounded, range(MAX_TYPICAL), strict=False)
    ]


def _spent_mechanisms(point: DecisionPoint) -> Iterator[Mapping[str, Any]]:
    records = {
        entry.charge_record for entry in point.entries.values() if entry.status in SPENDING_STATUSES
    }
    for record in point.records():
        if record.sequence in records:
            for fields in release_body_in(from_bytes(record.payload))["mechanisms"]:
                yield fields["mechanism"]


def _has_renyi_cost(fields: Mapping[str, Any], relation: NeighbouringRelation) -> bool:
    mechanism, _ = parse_mechanism(fields)
    return mechanism is not None and any(mix_costs(((mechanism, Fraction(1)),), relation))
