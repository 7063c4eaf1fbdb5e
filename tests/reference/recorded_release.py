"""Naive meaning of a recorded release: plain values that no later policy completes.

A meaning has the unit with its period, all labels, all attributes, and whether each partition that
the mechanism selects by was stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.rules import PolicyDict

Body = Mapping[str, Any]


def complete(policy: PolicyDict, body: Body) -> tuple[Body, ...]:
    """Return the meaning of each mechanism of a release that the policy can resolve."""
    return tuple(_complete_entry(policy, entry) for entry in body["mechanisms"])


def _complete_entry(policy: PolicyDict, entry: Body) -> Body:
    schema = policy["schema"]
    partitions, labels = schema.get("partitions", {}), entry.get("labels", {})
    (unit,) = [entry["unit"]] if "unit" in entry else policy["units"]
    selected = {name for box in _boxes(entry) for name in box}
    return {
        "unit": unit,
        "period": policy["units"][unit].get("period"),
        "labels": {
            name: labels.get(name, definition.get("default"))
            for name, definition in schema["labels"].items()
        },
        "attributes": sorted(
            {*entry.get("attributes", ()), *(selected & schema["attributes"].keys())}
        ),
        "stable": {name: partitions[name].get("stable", True) for name in sorted(selected)},
    }


def _boxes(entry: Body) -> list[Mapping[str, Any]]:
    selection = entry.get("where", ())
    return [selection] if isinstance(selection, Mapping) else list(selection)


def redefined_partitions(policy: PolicyDict, own: Body) -> set[str]:
    """Return the recorded partitions that a policy has and that became stable."""
    partitions = policy["schema"].get("partitions", {})
    return {
        name
        for name, was_stable in own["stable"].items()
        if name in partitions and partitions[name].get("stable", True) and not was_stable
    }


def keeps_statements(used: Sequence[Body], reserved: Sequence[Body]) -> bool:
    """Return whether used mechanisms mean what a reserved mechanism meant: unit, labels, places."""
    stable = {name: flag for own in reserved for name, flag in own["stable"].items()}
    statements = [(own["unit"], own["period"], own["labels"]) for own in reserved]
    return all(
        (own["unit"], own["period"], own["labels"]) in statements
        and all(stable.get(name, flag) == flag for name, flag in own["stable"].items())
        for own in used
    )


def loses_statements(old: Sequence[Body], new: Sequence[Body]) -> bool:
    """Return whether a correction changes a statement other than by adding attributes."""
    fixed = ("period", "labels", "stable")
    return any(
        any(before[key] != after[key] for key in fixed)
        or not set(before["attributes"]) <= set(after["attributes"])
        for before, after in zip(old, new, strict=True)
    )


def known_part(policy: PolicyDict, entry: Body, own: Body) -> Body:
    """Return a mechanism that selects by partitions with their recorded definition only."""
    known = policy["schema"].get("partitions", {}).keys() - redefined_partitions(policy, own)
    boxes = [{name: box[name] for name in box if name in known} for box in _boxes(entry)]
    return {**entry, "where": boxes}


def known_labels(definitions: Body, recorded: Body) -> dict[str, Any]:
    """Return the recorded labels that predicates can read; the others are unknown."""
    known: dict[str, Any] = {}
    for name, definition in definitions.items():
        value = recorded.get(name)
        values = value if isinstance(value, list | tuple) else [value]
        if value and set(values) <= set(definition["values"]):
            known[name] = tuple(sorted(values)) if definition.get("many") else value
    return known
