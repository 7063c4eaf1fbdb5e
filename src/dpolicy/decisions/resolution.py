"""Resolution: the predicate input, region and costs of each mechanism of a release.

The vocabulary is closed: an unknown label, value, attribute, unit or partition is an error, not "no
match". A partition that is also an attribute counts as read if a mechanism selects by it
(theory 0.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.policy.model import Partition
from dpolicy.privacy.loss import Certificates
from dpolicy.privacy.loss_arrays import LossArray
from dpolicy.privacy.mechanisms.registry import find_relation_problems
from dpolicy.privacy.units.privacy_units import PrivacyUnit
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
    """

    name: str
    predicate_input: PredicateInput
    region: Region | None
    costs: LossArray


def resolve_or_reject(release: Release, enforced: EnforcedPolicy) -> tuple[ResolvedMechanism, ...]:
    """Resolve the mechanisms of a release. Raise `ReleaseRejected` with all problems."""
    mechanisms, problems = resolve_release(release, enforced)
    if problems:
        raise ReleaseRejected(problems)
    return mechanisms


def resolve_release(
    release: Release, enforced: EnforcedPolicy, certificates: Certificates | None = None
) -> tuple[tuple[ResolvedMechanism, ...], tuple[InvalidValue, ...]]:
    """Return the resolved mechanisms and all problems; with problems, decide nothing.

    Costs are in the certificates of the policy, or in `certificates`.
    """
    resolved: list[ResolvedMechanism] = []
    problems: list[InvalidValue] = []
    for request in release.mechanisms:
        if len(problems) >= MAX_ERRORS:
            break  # each further problem costs a search for a similar name
        region, own_problems = _resolve_region(request, enforced)
        problems += [InvalidValue(p.code, f"`{request.name}`: {p.message}") for p in own_problems]
        if not own_problems:
            predicate_input = _build_predicate_input(request, release, enforced.policy)
            unit = enforced.policy.units[mechanism_unit(request, enforced.policy.units) or ""]
            costs = enforced.mechanism_costs(request, unit, certificates or enforced.certificates)
            resolved.append(ResolvedMechanism(request.name, predicate_input, region, costs))
    return tuple(resolved), tuple(problems)


def mechanism_unit(request: MechanismRequest, units: Mapping[str, PrivacyUnit]) -> str | None:
    """Return the name of the unit for which a mechanism is stated.

    A mechanism without `unit` is stated for the only unit of the policy, or for `user`. Return None
    if there are several units and none is called `user`.
    """
    if request.unit is not None:
        return request.unit
    if len(units) == 1:
        return next(iter(units))
    return "user" if "user" in units else None


def _resolve_region(
    request: MechanismRequest, enforced: EnforcedPolicy
) -> tuple[Region | None, list[InvalidValue]]:
    """Return the region of a mechanism and all problems of the mechanism."""
    problems = list(islice(_find_problems(request, enforced.policy), MAX_ERRORS))
    if problems:
        return None, problems
    try:
        return enforced.space.region(request.where, request.days_read), []
    except InvalidValue as error:
        return None, [error]


def _find_problems(request: MechanismRequest, policy: CompiledPolicy) -> Iterator[InvalidValue]:
    partitions = {str(name): partition for name, partition in policy.partitions.items()}
    for name in (mechanism_unit(request, policy.units), *request.restatements):
        if name is None:
            yield InvalidValue(
                "R001", f"`unit` is required; units of the policy: {', '.join(policy.units)}"
            )
        elif name not in policy.units:
            yield _unknown_name("R001", "unit", name, policy.units)
    yield from _find_relation_problems(request, policy.units)
    for name in request.attributes:
        if name not in policy.schema.attributes:
            yield _unknown_name("R002", "attribute", name, policy.schema.attributes)
    yield from _find_label_problems(request, policy.schema.labels)
    for box in request.where:
        for name, selection in box.items():
            yield from _find_selection_problems(name, selection, partitions)
    if policy.accounting.require_additive and not request.additive:
        yield InvalidValue("R007", "the policy requires `additive: true` (theory 5.3)")


def _find_relation_problems(
    request: MechanismRequest, units: Mapping[str, PrivacyUnit]
) -> Iterator[InvalidValue]:
    unit = units.get(mechanism_unit(request, units) or "")
    if unit is not None:
        yield from find_relation_problems(request.kind, request.relation, unit.relation)


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


def _build_predicate_input(
    request: MechanismRequest, release: Release, policy: CompiledPolicy
) -> PredicateInput:
    schema = policy.schema
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
