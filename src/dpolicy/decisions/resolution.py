"""Resolution: the predicate input, region and costs of each mechanism of a release.

A request is first completed: the policy supplies everything that the request leaves out
(`complete_meaning`). Then, and for a recorded release under every later policy, the mechanisms are
resolved from that meaning (`resolve_recorded`).

The vocabulary is closed: an unknown label, value, attribute, unit or partition of a request is an
error, not "no match". A partition that is also an attribute counts as read if a mechanism selects
by it (theory 0.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from dpolicy.balances.enforced_policy import (
    EnforcedPolicy,
    MechanismStatement,
    state_mechanism,
)
from dpolicy.decisions.completion import Reading, complete_meaning, unit_name
from dpolicy.decisions.recorded_names import known_boxes, known_labels, known_units
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.policy.model import Partition
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.mechanisms.registry import find_relation_problems
from dpolicy.releases.meaning import MechanismMeaning, ReleaseMeaning
from dpolicy.releases.regions import Region
from dpolicy.releases.release import MechanismRequest, Release, Selection
from dpolicy.releases.release_schema import Label, PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import MAX_ERRORS
from dpolicy.text.did_you_mean import suggest


@dataclass(frozen=True, slots=True)
class ResolvedMechanism:
    """A mechanism with its names resolved under a policy.

    `region` is None for the whole partition space; `costs` has one row per privacy unit.
    `statement` has what the costs were computed from.
    """

    name: str
    predicate_input: PredicateInput
    region: Region | None
    costs: LossArray
    statement: MechanismStatement


def resolve_or_reject(
    release: Release, enforced: EnforcedPolicy, reading: Reading = Reading.STRICT
) -> tuple[ResolvedMechanism, ...]:
    """Resolve the mechanisms of a release. Raise `ReleaseRejected` with all problems."""
    return complete_or_reject(release, enforced, reading)[1]


def complete_or_reject(
    release: Release, enforced: EnforcedPolicy, reading: Reading = Reading.STRICT
) -> tuple[ReleaseMeaning, tuple[ResolvedMechanism, ...]]:
    """Return the meaning of a release and its resolved mechanisms. Raise `ReleaseRejected`."""
    problems = _collect_problems(release, enforced, reading)
    if problems:
        raise ReleaseRejected(problems)
    meaning = complete_meaning(release, enforced.policy, reading)
    try:
        return meaning, resolve_recorded(release, meaning, enforced)
    except InvalidValue as error:
        raise ReleaseRejected([error]) from None


def resolve_release(
    release: Release,
    enforced: EnforcedPolicy,
    certificates: Certificates | None = None,
    reading: Reading = Reading.STRICT,
) -> tuple[tuple[ResolvedMechanism, ...], tuple[InvalidValue, ...]]:
    """Return the resolved mechanisms and all problems; with problems, decide nothing.

    Costs are in the certificates of the policy, or in `certificates`.
    """
    problems = _collect_problems(release, enforced, reading)
    if problems:
        return (), tuple(problems)
    meaning = complete_meaning(release, enforced.policy, reading)
    try:
        return resolve_recorded(release, meaning, enforced, certificates), ()
    except InvalidValue as error:
        return (), (error,)


def _collect_problems(
    release: Release, enforced: EnforcedPolicy, reading: Reading
) -> list[InvalidValue]:
    problems: list[InvalidValue] = []
    for request in release.mechanisms:
        if len(problems) >= MAX_ERRORS:
            break  # each further problem costs a search for a similar name
        own_problems = islice(find_problems(request, enforced.policy, reading), MAX_ERRORS)
        problems += [InvalidValue(p.code, f"`{request.name}`: {p.message}") for p in own_problems]
    return problems


def complete_or_none(release: Release, policy: CompiledPolicy) -> ReleaseMeaning | None:
    """Return the meaning of a release under a policy; None if the policy cannot resolve it."""
    requests = release.mechanisms
    if any(True for r in requests for _ in find_problems(r, policy, Reading.STRICT)):
        return None
    return complete_meaning(release, policy)


def resolve_recorded(
    release: Release,
    meaning: ReleaseMeaning,
    enforced: EnforcedPolicy,
    certificates: Certificates | None = None,
) -> tuple[ResolvedMechanism, ...]:
    """Resolve the mechanisms of a release from its recorded meaning.

    Raise `InvalidValue` if an attribute is not in the vocabulary, or a region has too many boxes.
    A name with another definition under this policy is never read by the new definition
    (`recorded_names`).
    """
    return tuple(
        _resolve_mechanism(request, own, release.by, meaning, enforced, certificates)
        for request, own in zip(release.mechanisms, meaning.mechanisms, strict=True)
    )


def _resolve_mechanism(
    request: MechanismRequest,
    own: MechanismMeaning,
    by: str,
    meaning: ReleaseMeaning,
    enforced: EnforcedPolicy,
    certificates: Certificates | None,
) -> ResolvedMechanism:
    policy = enforced.policy
    unknown = [name for name in own.attributes if name not in policy.schema.attributes]
    if unknown:
        raise _unknown_name("R002", "attribute", unknown[0], policy.schema.attributes)
    try:
        region = enforced.space.region(known_boxes(request, meaning, policy), request.days_read)
    except InvalidValue as error:
        raise InvalidValue(error.code, f"`{request.name}`: {error.message}") from None
    units = known_units(meaning, policy)
    restatements = tuple((units[name], stated) for name, stated in request.restatements.items())
    statement = state_mechanism(
        request, units[own.unit], own.relation, restatements, certificates or enforced.certificates
    )
    costs = enforced.mechanism_costs(statement)
    selected = {name for box in request.where for name in box} & policy.schema.attributes
    labels, unknown_labels = known_labels(own.labels, policy.schema.labels)
    predicate_input = PredicateInput(
        tuple(sorted({*own.attributes, *selected})), labels, request.kind, by, unknown_labels
    )
    return ResolvedMechanism(request.name, predicate_input, region, costs, statement)


def find_problems(
    request: MechanismRequest, policy: CompiledPolicy, reading: Reading
) -> Iterator[InvalidValue]:
    """Yield everything in a requested mechanism that the policy does not define or forbids."""
    partitions = {str(name): partition for name, partition in policy.partitions.items()}
    for name in (unit_name(request, policy.units, reading), *request.restatements):
        if name is None:
            yield InvalidValue(
                "R001", f"`unit` is required; units of the policy: {', '.join(policy.units)}"
            )
        elif name not in policy.units:
            yield _unknown_name("R001", "unit", name, policy.units)
    unit = policy.units.get(unit_name(request, policy.units, reading) or "")
    if unit is not None and reading is Reading.STRICT:
        yield from find_relation_problems(request.kind, request.relation, unit.relation)
    for name in request.attributes:
        if name not in policy.schema.attributes:
            yield _unknown_name("R002", "attribute", name, policy.schema.attributes)
    yield from _find_label_problems(request, policy.schema.labels)
    for box in request.where:
        for name, selection in box.items():
            yield from _find_selection_problems(name, selection, partitions)
    if policy.accounting.require_additive and not request.additive:
        yield InvalidValue("R007", "the policy requires `additive: true` (theory 5.3)")


def _unknown_name(code: str, kind: str, name: str, known_names: Iterable[str]) -> InvalidValue:
    hint = suggest(name, known_names)
    return InvalidValue(code, f"there is no {kind} `{name}`" + (f"; {hint}" if hint else ""))


def _find_label_problems(
    request: MechanismRequest, labels: Mapping[str, Label]
) -> Iterator[InvalidValue]:
    for name in request.labels:
        if name not in labels:
            yield _unknown_name("R003", "label", name, labels)
    for name, label in labels.items():
        value = request.labels.get(name)
        if value is None or value == ():
            if label.required:
                yield InvalidValue("R004", f"the label `{name}` is required")
            continue
        if isinstance(value, tuple) and not label.many:
            yield InvalidValue("R005", f"the label `{name}` takes one value")
        for single in value if isinstance(value, tuple) else (value,):
            if label.values is not None and single not in label.values:
                hint = suggest(single, label.values)
                message = f"`{single}` is not a value of the label `{name}`"
                yield InvalidValue("R005", message + (f"; {hint}" if hint else ""))


def _find_selection_problems(
    name: str, selection: Selection, partitions: Mapping[str, Partition]
) -> Iterator[InvalidValue]:
    partition = partitions.get(name)
    if partition is None:
        yield _unknown_name("R006", "partition", name, partitions)
    elif partition.values is None:
        first, last = partition.first or 0, partition.last or 0
        ends = _range_ends(selection)
        if ends is None or not first <= ends[0] <= ends[1] <= last:
            yield InvalidValue("R006", f"`{name}` must be a range within {first} to {last}")
    elif isinstance(selection[0], int):
        yield InvalidValue("R006", f"the partition `{name}` has listed values, not a range")
    else:
        values = frozenset(map(str, partition.values))
        for value in selection:
            if value not in values:
                yield _unknown_name("R006", f"value of `{name}`", str(value), values)


def _range_ends(selection: Selection) -> tuple[int, int] | None:
    if len(selection) == 2 and isinstance(selection[0], int) and isinstance(selection[1], int):
        return selection[0], selection[1]
    return None
