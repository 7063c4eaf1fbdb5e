"""Conversion of a policy, its cohorts and its releases to Cohere's files.

A kept cumulative rule becomes a section of every block of its unit. A request names the kept rules
that it matches in the attribute `Rules`, each with the region in which it is charged (theory 6.1),
and states its Rényi cost for every unit. A property that the files cannot express is charged more
or reported as a problem, never charged less: several mechanisms are charged together in the union
of their regions, and at all times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import count

from dpolicy.balances.enforced_policy import EnforcedPolicy, enforce
from dpolicy.balances.partition_space import PartitionAxis, build_partition_space
from dpolicy.decisions.resolution import ResolvedMechanism, resolve_release
from dpolicy.errors import InvalidValue, PredicateFailed
from dpolicy.integrations.cohere.cohere_model import (
    RULES,
    Between,
    CohereBlock,
    CohereCosts,
    CohereDomain,
    CohereIntervals,
    CohereRange,
    CohereRequest,
    CohereSchema,
    CohereSection,
    CohereTest,
    Conjunction,
    Eq,
    In,
)
from dpolicy.integrations.value_reader import Problems
from dpolicy.privacy.budget import EpsilonDelta, Unlimited, format_budget
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, renyi
from dpolicy.privacy.loss import INFINITE, Certificates
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.regions import Box, region_from_boxes
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

_INTEGER = re.compile(r"0|[1-9][0-9]{0,11}")


def cohere_unit_name(name: str) -> str:
    """Return the name of a dpolicy unit in Cohere's files: `user-month` becomes `UserMonth`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("-"))


def dpolicy_unit_name(name: str) -> str:
    """Return the name of a Cohere unit in a policy: `UserMonth` becomes `user-month`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def export_schema(
    policy: CompiledPolicy, *, window: int, cohort: str | None = None
) -> tuple[CohereSchema | None, Problems]:
    """Convert a policy to a schema. The values of `Rules` are the names of the kept rules.

    The partition `cohort` is omitted: blocks, which are active for `window` rounds, represent it.
    """
    problems = tuple(_policy_problems(policy, cohort))
    if problems:
        return None, problems
    domains: dict[str, CohereDomain] = {
        axis.name: axis.values or CohereRange(axis.extent[0], axis.extent[1] - 1)
        for axis in build_partition_space(policy).axes
        if axis.name != cohort
    }
    rules = _rules_to_export(policy).values()
    domains[RULES] = tuple(dict.fromkeys(rule.name for rule in rules))
    units = tuple(map(cohere_unit_name, _units_to_export(policy)))
    return CohereSchema(domains, units, window, policy.accounting.orders), ()


def export_blocks(
    policy: CompiledPolicy, cohorts: Iterable[int], *, window: int
) -> tuple[tuple[CohereBlock, ...] | None, Problems]:
    """Create a block for each cohort and unit, with one section for each kept rule of the unit.

    A cohort is the number of the round in which its users join.
    """
    problems = tuple(_policy_problems(policy, None))
    if problems:
        return None, problems
    sections = {
        unit: tuple(
            CohereSection(rule.budget, ({RULES: Eq(rule.name)},))
            for rule in _rules_to_export(policy).values()
            if rule.unit == unit
        )
        for unit in _units_to_export(policy)
    }
    pairs = [(cohort, unit) for cohort in cohorts for unit in sections]
    return tuple(
        CohereBlock(
            number,
            cohere_unit_name(unit),
            cohort,
            cohort + window,
            ((cohort, cohort),),
            None,
            sections[unit],
        )
        for number, (cohort, unit) in enumerate(pairs)
    ), ()


def export_requests(
    policy: CompiledPolicy,
    releases: Sequence[Release],
    *,
    created: int,
    cohort: str | None = None,
) -> tuple[tuple[CohereRequest, ...] | None, Problems]:
    """Convert releases to requests of the round `created`, in the same order.

    A release id that is an integer becomes the request id; other releases get unused integers.
    """
    problems = list(_policy_problems(policy, cohort))
    counts = Counter(release.id for release in releases)
    problems += [
        InvalidValue("C006", f"release `{name}` occurs {times} times")
        for name, times in counts.items()
        if times > 1
    ]
    if problems:
        return None, tuple(problems)
    enforced = enforce(policy)
    requests = []
    for number, release in zip(_request_ids(releases), releases, strict=True):
        charge, charge_problems = _release_charge(release, enforced)
        problems += [InvalidValue(p.code, f"`{release.id}`: {p.message}") for p in charge_problems]
        if charge is not None:
            requests.append(_request(number, created, release, charge, enforced, cohort))
    return (None if problems else tuple(requests)), tuple(problems)


@dataclass(frozen=True, slots=True)
class _ExportedRule:
    """Rule that Cohere's files can express."""

    name: str
    unit: str
    budget: EpsilonDelta


@lru_cache(maxsize=8)
def _rules_to_export(policy: CompiledPolicy) -> dict[int, _ExportedRule]:
    """Return the kept cumulative rules by number, without unlimited ones, which never deny."""
    section = policy.cumulative
    kept = (section.rules[int(number)] for number in section.pruning.kept.nonzero()[0])
    return {
        rule.number: _ExportedRule(rule.name, rule.unit, rule.budget)
        for rule in kept
        if isinstance(rule.budget, EpsilonDelta)
    }


def _units_to_export(policy: CompiledPolicy) -> tuple[str, ...]:
    """Return the units of exported rules, in the order of the policy."""
    used = {rule.unit for rule in _rules_to_export(policy).values()}
    return tuple(name for name in policy.units if name in used)


def _policy_problems(policy: CompiledPolicy, cohort: str | None) -> Iterator[InvalidValue]:
    """Report all properties of a policy that Cohere's files cannot express."""
    for rule in policy.rules:
        budget = rule.budget
        pure = isinstance(budget, EpsilonDelta) and not budget.delta
        if rule.each_release or isinstance(budget, Unlimited):
            continue
        if pure or not isinstance(budget, EpsilonDelta):
            message = f"rule `{rule.name}` has the budget {format_budget(budget)}"
            yield InvalidValue("C020", f"{message}; Cohere's files only hold ε with a δ above 0")
    for unit in _units_to_export(policy):
        if dpolicy_unit_name(cohere_unit_name(unit)) != unit:
            yield InvalidValue("C021", f"unit `{unit}` would be imported under another name")
    axes = {axis.name: axis for axis in build_partition_space(policy).axes}
    if RULES in axes and cohort != RULES:
        yield InvalidValue("C021", f"partition `{RULES}` has the name that is reserved for rules")
    if cohort is not None and (cohort not in axes or axes[cohort].values):
        yield InvalidValue("C021", f"`{cohort}` is not a partition with a range of integers")


def _request_ids(releases: Sequence[Release]) -> list[int]:
    """Return the id of each request: the release id if it is an integer, else an unused one."""
    integers = {r.id: int(r.id) for r in releases if _INTEGER.fullmatch(r.id)}
    used = set(integers.values())
    unused = (number for number in count() if number not in used)
    return [integers[r.id] if r.id in integers else next(unused) for r in releases]


@dataclass(frozen=True, slots=True)
class _ReleaseCharge:
    """Charge of a release: boxes with the rules charged there, costs by unit, attributes read."""

    boxes: tuple[tuple[Box, tuple[str, ...]], ...]
    costs: LossArray
    attributes: tuple[str, ...]


def _release_charge(
    release: Release, enforced: EnforcedPolicy
) -> tuple[_ReleaseCharge | None, Problems]:
    """Sum the costs of all charged mechanisms, or return None and all problems."""
    mechanisms, problems = resolve_release(release, enforced, _renyi_certificates(enforced.policy))
    if problems:
        return None, problems
    charge_problems: list[InvalidValue] = []
    boxes: list[tuple[Box, tuple[str, ...]]] = []
    rows = []
    for mechanism in mechanisms:
        try:
            charged_boxes = _boxes_with_rules(mechanism, enforced)
        except (InvalidValue, PredicateFailed) as error:
            code = error.code if isinstance(error, InvalidValue) else "C024"
            message = error.message if isinstance(error, InvalidValue) else str(error)
            charge_problems.append(InvalidValue(code, f"`{mechanism.name}`: {message}"))
            continue
        boxes += charged_boxes
        rows += [mechanism.costs] if charged_boxes else []
    if not boxes and not charge_problems:
        charge_problems.append(InvalidValue("C023", "no exported rule covers the release"))
    if charge_problems:
        return None, tuple(charge_problems)
    attributes = sorted(
        {name for mechanism in mechanisms for name in mechanism.predicate_input.attributes}
    )
    return _ReleaseCharge(tuple(boxes), reduce(add_saturating, rows), tuple(attributes)), ()


@lru_cache(maxsize=8)
def _renyi_certificates(policy: CompiledPolicy) -> Certificates:
    return tuple(map(renyi, policy.accounting.orders))


def _boxes_with_rules(
    mechanism: ResolvedMechanism, enforced: EnforcedPolicy
) -> list[tuple[Box, tuple[str, ...]]]:
    """Return the boxes in which a mechanism is charged, each with the rules charged there."""
    section, policy = enforced.cumulative, enforced.policy
    numbers = section.compiled.index.matching_rules(mechanism.predicate_input)
    if not numbers and not policy.accounting.allow_uncovered:
        raise InvalidValue("C023", "no cumulative rule covers the mechanism")
    exported, units = _rules_to_export(policy), list(policy.units)
    by_box: dict[Box, list[str]] = {}
    for number in numbers:
        if number not in exported:
            continue
        if mechanism.costs[units.index(exported[number].unit), -1]:
            raise InvalidValue("C022", "the loss has a δ, which Rényi costs cannot express")
        blocks = section.granularities.blocks(mechanism.region, number)
        without_time = region_from_boxes(box[:-1] for box in blocks.boxes)
        for box in without_time.boxes:
            by_box.setdefault(box, []).append(exported[number].name)
    return [(box, tuple(dict.fromkeys(names))) for box, names in by_box.items()]


def _request(
    number: int,
    created: int,
    release: Release,
    charge: _ReleaseCharge,
    enforced: EnforcedPolicy,
    cohort: str | None,
) -> CohereRequest:
    axes, units = enforced.space.axes, list(enforced.policy.units)
    exported = _units_to_export(enforced.policy)
    conjunctions = [_conjunction(box, rules, axes, cohort) for box, rules in charge.boxes]
    selection: dict[str, CohereIntervals] = {}
    for position, axis in enumerate(axes):
        if axis.name == cohort:
            runs = region_from_boxes((box[position],) for box, _ in charge.boxes).boxes
            intervals = tuple((low, high - 1) for ((low, high),) in runs)
            selection = dict.fromkeys(map(cohere_unit_name, exported), intervals)
    distinct = {tuple(conjunction.items()): conjunction for conjunction in conjunctions}
    return CohereRequest(
        number,
        created,
        round(release.utility or 0),
        {cohere_unit_name(u): _costs(charge.costs, units.index(u)) for u in exported},
        tuple(distinct.values()),
        selection,
        charge.attributes,
    )


def _conjunction(
    box: Box, rules: tuple[str, ...], axes: Sequence[PartitionAxis], cohort: str | None
) -> Conjunction:
    """Return the tests that select a box, and the rules that are charged there."""
    tests: dict[str, CohereTest] = {}
    for axis, (low, high) in zip(axes, box, strict=True):
        if axis.name == cohort or (low, high) == axis.extent:
            continue
        if axis.values:
            values = axis.values[low:high]
            tests[axis.name] = Eq(values[0]) if len(values) == 1 else In(values)
        else:
            tests[axis.name] = Between(low, high - 1)
    return {**tests, RULES: In(rules)}


def _costs(rows: LossArray, unit: int) -> CohereCosts:
    return tuple(
        None if amount >= INFINITE else Fraction(amount, QUANTA_PER_UNIT)
        for amount in rows[unit, :-1].tolist()
    )
