"""A policy, its cohorts and its releases → what Cohere's files say of them.

A kept rule over all releases becomes a section of every block of its unit. A request names the kept
rules it matches in the attribute `Rules`, each at the places where it is charged (theory 6.1), with
its Rényi cost for every unit. What the files cannot hold is charged more or is a problem, never
charged less: several mechanisms are charged together wherever one of them is, and at all times.
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
    CohereRange,
    CohereRequest,
    CohereSchema,
    CohereSection,
    CohereTest,
    Conjunction,
    Eq,
    In,
    Intervals,
)
from dpolicy.integrations.cohere.cohere_reader import Problems
from dpolicy.privacy.budget import EpsilonDelta, Unlimited, format_budget
from dpolicy.privacy.certificates import QUANTA_PER_UNIT, renyi
from dpolicy.privacy.loss import INFINITE, Certificates
from dpolicy.privacy.loss_arrays import LossArray, add_saturating
from dpolicy.releases.regions import Box, region_from_boxes
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

_NUMBER = re.compile(r"0|[1-9][0-9]{0,11}")


def cohere_unit_name(name: str) -> str:
    """The name of one of our units in Cohere's files: `user-month` is `UserMonth`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("-"))


def dpolicy_unit_name(name: str) -> str:
    """The name of one of Cohere's units in our files."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def export_schema(
    policy: CompiledPolicy, *, window: int, cohort: str | None = None
) -> tuple[CohereSchema | None, Problems]:
    """A policy → the schema; the partition `cohort` is left to blocks, which live `window` rounds.

    The values of `Rules` are the names of the kept rules over all releases.
    """
    written, problems = _written(policy), _problems(policy, cohort)
    if problems:
        return None, problems
    domains: dict[str, CohereDomain] = {
        axis.name: axis.values or CohereRange(axis.extent[0], axis.extent[1] - 1)
        for axis in build_partition_space(policy).axes
        if axis.name != cohort
    }
    domains[RULES] = tuple(dict.fromkeys(rule.name for rule in written.values()))
    units = tuple(map(cohere_unit_name, _units(policy)))
    return CohereSchema(domains, units, window, policy.policy_set.accounting.orders), ()


def export_blocks(
    policy: CompiledPolicy, cohorts: Iterable[int], *, window: int
) -> tuple[tuple[CohereBlock, ...] | None, Problems]:
    """Cohorts by the round they join → a block for each unit, with a section for each kept rule."""
    problems = _problems(policy, None)
    if problems:
        return None, problems
    sections = {
        unit: tuple(
            CohereSection(rule.budget, ({RULES: Eq(rule.name)},))
            for rule in _written(policy).values()
            if rule.unit == unit
        )
        for unit in _units(policy)
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
    """Releases → requests in the same order, all asked in the round `created`.

    An id that is a whole number stays; the others are numbered by the numbers that are left.
    """
    problems = list(_problems(policy, cohort))
    twice = [name for name, n in Counter(release.id for release in releases).items() if n > 1]
    problems += [InvalidValue("C006", f"the release `{name}` stands twice") for name in twice]
    if problems:
        return None, tuple(problems)
    enforced = enforce(policy)
    requests = []
    for number, release in zip(_numbers(releases), releases, strict=True):
        charged, found = _charged(release, enforced)
        problems += [InvalidValue(p.code, f"`{release.id}`: {p.message}") for p in found]
        if charged is not None:
            requests.append(_request(number, created, release, charged, enforced, cohort))
    return (None if problems else tuple(requests)), tuple(problems)


@dataclass(frozen=True, slots=True)
class _Written:
    """A rule that the files can hold."""

    name: str
    unit: str
    budget: EpsilonDelta


@lru_cache(maxsize=8)
def _written(policy: CompiledPolicy) -> dict[int, _Written]:
    """The kept rules over all releases by number; what never denies is not written."""
    section = policy.cumulative
    kept = (section.rules[int(number)] for number in section.pruning.kept.nonzero()[0])
    return {
        rule.number: _Written(rule.name, rule.unit, rule.budget)
        for rule in kept
        if isinstance(rule.budget, EpsilonDelta)
    }


def _units(policy: CompiledPolicy) -> tuple[str, ...]:
    """The units that a written rule is for, in the order of the policy."""
    used = {rule.unit for rule in _written(policy).values()}
    return tuple(name for name in policy.checked_policy_set.vocabulary.units if name in used)


def _problems(policy: CompiledPolicy, cohort: str | None) -> Problems:
    """What no file can hold of a policy."""
    return tuple(_policy_problems(policy, cohort))


def _policy_problems(policy: CompiledPolicy, cohort: str | None) -> Iterator[InvalidValue]:
    for rule in policy.rules:
        budget = rule.budget
        pure = isinstance(budget, EpsilonDelta) and not budget.delta
        if rule.each_release or isinstance(budget, Unlimited):
            continue
        if pure or not isinstance(budget, EpsilonDelta):
            shown = f"the rule `{rule.name}` has the budget {format_budget(budget)}"
            yield InvalidValue("C020", f"{shown}; the files hold ε with a δ above 0 only")
    for unit in _units(policy):
        if dpolicy_unit_name(cohere_unit_name(unit)) != unit:
            yield InvalidValue("C021", f"the unit `{unit}` would come back under another name")
    axes = {axis.name: axis for axis in build_partition_space(policy).axes}
    if RULES in axes and cohort != RULES:
        yield InvalidValue("C021", f"the partition `{RULES}` has the name that rules ride under")
    if cohort is not None and (cohort not in axes or axes[cohort].values):
        yield InvalidValue("C021", f"`{cohort}` is no partition with a range of whole numbers")


def _numbers(releases: Sequence[Release]) -> list[int]:
    own = {release.id: int(release.id) for release in releases if _NUMBER.fullmatch(release.id)}
    taken = set(own.values())
    free = (number for number in count() if number not in taken)
    return [own[release.id] if release.id in own else next(free) for release in releases]


@dataclass(frozen=True, slots=True)
class _Charged:
    """What a release is charged: rules with their boxes, the cost a unit, and what it reads."""

    boxes: tuple[tuple[Box, tuple[str, ...]], ...]
    costs: LossArray
    attributes: tuple[str, ...]


def _charged(release: Release, enforced: EnforcedPolicy) -> tuple[_Charged | None, Problems]:
    mechanisms, problems = resolve_release(release, enforced, _certificates(enforced.policy))
    if problems:
        return None, problems
    found: list[InvalidValue] = []
    boxes: list[tuple[Box, tuple[str, ...]]] = []
    rows = []
    for mechanism in mechanisms:
        try:
            drawn = _boxes(mechanism, enforced)
        except (InvalidValue, PredicateFailed) as error:
            code = error.code if isinstance(error, InvalidValue) else "C024"
            shown = error.message if isinstance(error, InvalidValue) else str(error)
            found.append(InvalidValue(code, f"`{mechanism.name}`: {shown}"))
            continue
        boxes += drawn
        rows += [mechanism.costs] if drawn else []
    if not boxes and not found:
        found.append(InvalidValue("C023", "no rule that the files hold bounds it"))
    if found:
        return None, tuple(found)
    attributes = sorted(
        {name for mechanism in mechanisms for name in mechanism.predicate_input.attributes}
    )
    return _Charged(tuple(boxes), reduce(add_saturating, rows), tuple(attributes)), ()


@lru_cache(maxsize=8)
def _certificates(policy: CompiledPolicy) -> Certificates:
    return tuple(map(renyi, policy.policy_set.accounting.orders))


def _boxes(
    mechanism: ResolvedMechanism, enforced: EnforcedPolicy
) -> list[tuple[Box, tuple[str, ...]]]:
    """The boxes that a mechanism is charged in, each with the rules that are charged there."""
    of, policy = enforced.cumulative, enforced.policy
    numbers = of.compiled.index.matching_rules(mechanism.predicate_input)
    if not numbers and not policy.accounting.allow_uncovered:
        raise InvalidValue("C023", "no rule over all releases bounds it")
    written, units = _written(policy), list(policy.checked_policy_set.vocabulary.units)
    by_box: dict[Box, list[str]] = {}
    for number in numbers:
        if number not in written:
            continue
        if mechanism.costs[units.index(written[number].unit), -1]:
            raise InvalidValue("C022", "it may leak with some δ, and Rényi costs cannot say so")
        blocks = of.granularities.blocks(mechanism.region, number)
        for box in region_from_boxes(box[:-1] for box in blocks.boxes).boxes:  # time is not split
            by_box.setdefault(box, []).append(written[number].name)
    return [(box, tuple(dict.fromkeys(names))) for box, names in by_box.items()]


def _request(
    number: int,
    created: int,
    release: Release,
    charged: _Charged,
    enforced: EnforcedPolicy,
    cohort: str | None,
) -> CohereRequest:
    policy, axes = enforced.policy, enforced.space.axes
    units = list(policy.units)
    drawn = [_conjunction(box, rules, axes, cohort) for box, rules in charged.boxes]
    selection: dict[str, Intervals] = {}
    for place, axis in enumerate(axes):
        if axis.name == cohort:
            runs = region_from_boxes((box[place],) for box, _ in charged.boxes).boxes
            chosen = tuple((low, high - 1) for ((low, high),) in runs)
            selection = dict.fromkeys(map(cohere_unit_name, _units(policy)), chosen)
    return CohereRequest(
        number,
        created,
        round(release.utility or 0),
        {cohere_unit_name(u): _costs(charged.costs, units.index(u)) for u in _units(policy)},
        tuple({tuple(conjunction.items()): conjunction for conjunction in drawn}.values()),
        selection,
        charged.attributes,
    )


def _conjunction(
    box: Box, rules: tuple[str, ...], axes: Sequence[PartitionAxis], cohort: str | None
) -> Conjunction:
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
