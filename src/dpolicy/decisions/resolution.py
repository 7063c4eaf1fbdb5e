"""A release and a policy → the facts and costs of each mechanism, or all that is wrong with it.

The vocabulary is closed: an unknown label, value, attribute, unit or partition is an error and not
"no match". A partition that is also an attribute counts as used wherever it selects (theory 0.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from dpolicy.balances.enforced_policy import certificates_for
from dpolicy.balances.partition_space import partition_space_for
from dpolicy.errors import (
    InvalidValue,
    ReleaseRejected,
)
from dpolicy.policy.model import Partition
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray, losses_to_array
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit, TouchedDays
from dpolicy.releases.regions import Region
from dpolicy.releases.release import MechanismRequest, Release, Selection
from dpolicy.releases.release_schema import Label, PredicateInput
from dpolicy.rules.compiler import CompiledPolicy
from dpolicy.text.diagnostics import MAX_ERRORS
from dpolicy.text.did_you_mean import suggest


@dataclass(frozen=True, slots=True)
class ResolvedMechanism:
    """A mechanism whose names are looked up: what predicates read, its places, its costs.

    `region` is None for everybody at all times; `costs` has a row for every unit.
    """

    name: str
    predicate_input: PredicateInput
    region: Region | None
    costs: LossArray


def resolve_release(
    release: Release, policy: CompiledPolicy, certificates: Certificates
) -> tuple[tuple[ResolvedMechanism, ...], tuple[InvalidValue, ...]]:
    """Every mechanism of a release, and every problem; with problems, nothing is decided."""
    resolved: list[ResolvedMechanism] = []
    problems: list[InvalidValue] = []
    for request in release.mechanisms:
        if len(problems) >= MAX_ERRORS:
            break  # nobody mends more in one go, and each looks for what was meant
        found = list(islice(_problems(request, policy), MAX_ERRORS))
        try:
            region = (
                None
                if found
                else partition_space_for(policy).region(request.where, request.days_read)
            )
        except InvalidValue as error:
            found.append(error)
        problems += [InvalidValue(p.code, f"`{request.name}`: {p.message}") for p in found]
        if not found:
            facts, costs = _facts(request, release, policy), _costs(request, policy, certificates)
            resolved.append(ResolvedMechanism(request.name, facts, region, costs))
    return tuple(resolved), tuple(problems)


def _unit_name(request: MechanismRequest, policy: CompiledPolicy) -> str | None:
    """The unit that a mechanism states, or the only sensible one."""
    units = policy.checked_policy_set.vocabulary.units
    if request.unit is not None:
        return request.unit
    if len(units) == 1:
        return next(iter(units))
    return "user" if "user" in units else None


def _problems(request: MechanismRequest, policy: CompiledPolicy) -> Iterator[InvalidValue]:
    vocabulary = policy.checked_policy_set.vocabulary
    partitions = {str(name): said for name, said in policy.policy_set.partitions.items()}
    for name in (_unit_name(request, policy), *request.restatements):
        if name is None:
            yield InvalidValue("R001", "it must say its `unit`")
        elif name not in vocabulary.units:
            yield _unknown("R001", "unit", name, vocabulary.units)
    for name in request.attributes:
        if name not in vocabulary.schema.attributes:
            yield _unknown("R002", "attribute", name, vocabulary.schema.attributes)
    yield from _label_problems(request, vocabulary.schema.labels)
    for box in request.where:
        for name, selection in box.items():
            yield from _selection_problems(name, selection, partitions)
    if policy.policy_set.accounting.require_additive and not request.additive:
        shown = "the policy requires mechanisms that are `additive: true` (theory 5.3)"
        yield InvalidValue("R007", shown)


def _unknown(code: str, what: str, name: str, known_names: object) -> InvalidValue:
    hint = suggest(name, known_names) if isinstance(known_names, Mapping | frozenset) else None
    return InvalidValue(code, f"there is no {what} `{name}`" + (f"; {hint}" if hint else ""))


def _label_problems(
    request: MechanismRequest, labels: Mapping[str, Label]
) -> Iterator[InvalidValue]:
    for name in request.labels:
        if name not in labels:
            yield _unknown("R003", "label", name, labels)
    for name, label in labels.items():
        value = request.labels.get(name)
        if value is None or value == ():
            if label.required:
                yield InvalidValue("R004", f"the label `{name}` is required")
            continue
        if isinstance(value, tuple) and not label.many:
            yield InvalidValue("R005", f"the label `{name}` takes one value")
        for one in value if isinstance(value, tuple) else (value,):
            if label.values is not None and one not in label.values:
                hint = suggest(one, label.values)
                shown = f"`{one}` is no value of the label `{name}`"
                yield InvalidValue("R005", shown + (f"; {hint}" if hint else ""))


def _selection_problems(
    name: str, selection: Selection, partitions: Mapping[str, Partition]
) -> Iterator[InvalidValue]:
    partition = partitions.get(name)
    if partition is None:
        yield _unknown("R006", "partition", name, partitions)
    elif partition.values is None:
        first, last = partition.first or 0, partition.last or 0
        ends = _ends(selection)
        if ends is None or not first <= ends[0] <= ends[1] <= last:
            yield InvalidValue("R006", f"`{name}` must be a range within {first} to {last}")
    elif isinstance(selection[0], int):
        yield InvalidValue("R006", f"the partition `{name}` has values, not a range")
    else:
        values = frozenset(map(str, partition.values))
        for value in selection:
            if value not in values:
                yield _unknown("R006", f"value of `{name}`", str(value), values)


def _ends(selection: Selection) -> tuple[int, int] | None:
    if len(selection) == 2 and isinstance(selection[0], int) and isinstance(selection[1], int):
        return selection[0], selection[1]
    return None


def _facts(request: MechanismRequest, release: Release, policy: CompiledPolicy) -> PredicateInput:
    schema = policy.checked_policy_set.vocabulary.schema
    selected = {name for box in request.where for name in box} & schema.attributes
    labels: dict[str, str | tuple[str, ...]] = {}
    for name, label in schema.labels.items():
        value = request.labels.get(name)
        if label.many:
            labels[name] = tuple(sorted({value} if isinstance(value, str) else set(value or ())))
        elif value or label.default is not None:
            labels[name] = value or label.default or ""
    attributes = tuple(sorted({*request.attributes, *selected}))
    return PredicateInput(attributes, labels, request.kind, release.by)


def _costs(
    request: MechanismRequest, policy: CompiledPolicy, certificates: Certificates
) -> LossArray:
    stated = policy.checked_policy_set.vocabulary.units[_unit_name(request, policy) or ""]
    return _cost_rows(
        request.mechanism,
        stated,
        request.relation or stated.relation,
        request.additive,
        tuple(request.restatements.items()),
        request.days_read,
        policy,
        certificates,
    )


@lru_cache(maxsize=16_384)
def _cost_rows(
    mechanism: Mechanism,
    stated: PrivacyUnit,
    relation: NeighbouringRelation,
    additive: bool,
    also: tuple[tuple[str, Mechanism], ...],
    touched: TouchedDays | None,
    policy: CompiledPolicy,
    certificates: Certificates,
) -> LossArray:
    """The cost for every unit of a policy, in its order; pipelines ask the same again and again."""
    vocabulary = policy.checked_policy_set.vocabulary
    units = tuple(vocabulary.units.values())
    context = GroupContext(units, additive, touched, vocabulary.covers)
    table = cost_by_unit(mechanism, stated, relation, context, certificates, dict(also))
    rows = losses_to_array(table.values())
    rows.setflags(write=False)
    return rows


def resolve_or_reject(release: Release, policy: CompiledPolicy) -> tuple[ResolvedMechanism, ...]:
    """The mechanisms of a release, or everything that a policy cannot read of it."""
    mechanisms, problems = resolve_release(release, policy, certificates_for(policy))
    if problems:
        raise ReleaseRejected(problems)
    return mechanisms
