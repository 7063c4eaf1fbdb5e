"""Naive decision point: a list of events, and every decision computed from scratch.

The model follows docs/releases.md and theory 0.1, 1.4, 7 and 8, not the code: it checks all rules
without pruning, sums all releases without running sums, and uses fractions instead of integers. A
policy and a release body are plain dicts. Units are `user`, or have a period, under add-remove;
mechanisms are `declared`, `gaussian` and `laplace`. Every rule is checked in each of its blocks
(`rule_blocks`). A recorded release keeps its meaning (`recorded_release`), so that a later policy
does not complete it. A recorded release on which a predicate fails is charged to every rule that
may match it, and to the rules that imply them; the caller says which rule implies which. Costs and
thresholds are those of accounting defaults 2, and of defaults 3 for a policy that states the
profile `anchored` (`newest_accounting`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import compress
from math import ceil, inf
from typing import Any

from mpmath import mp
from tests.reference import newest_accounting, recorded_release, rule_blocks
from tests.reference import rules as twin
from tests.reference.rule_blocks import Block, PlacedMechanism
from tests.reference.rules import Cost, Key, Mechanism, PolicyDict, Rule

from dpolicy.privacy.loss_distribution.loss_run import LossRun

Body = Mapping[str, Any]
Placed = Sequence[PlacedMechanism]
#: Name and unit of a cumulative rule.
RuleName = tuple[str, str]
UNKNOWN: Cost = ({}, Fraction(1))
COUNTED = ("allowed", "reserved", "committed", "expired", "imported")
EVERYTHING = PlacedMechanism(unknown=True)
TWO_MONTHS = frozenset(date(2026, 7, 1) + timedelta(days=n) for n in range(62))


class Rejected(Exception):
    """Rejection of a call; the model is unchanged."""


@dataclass(frozen=True)
class PastRelease:
    """Recorded release: status, requested mechanisms, charged mechanisms and their meaning.

    Without a meaning, the active policy completes the charged mechanisms.
    """

    status: str
    requested: Body
    charged: Body
    expires: datetime | None = None
    meaning: tuple[Body, ...] | None = None


@dataclass(frozen=True)
class BlockStatus:
    """Balance and cost of a rule in one block, and the other blocks with the same values.

    `runs` are the loss pairs of the cost.
    """

    blocks: tuple[Block, ...]
    spent: list[Cost]
    cost: list[Cost]
    runs: list[LossRun | None]

    def exact_epsilon(self, rule: Rule) -> Fraction | None:
        """Return the ε that loss distributions certify for a per-release rule, if any."""
        if not (rule.each_release and rule.added and rule.budget["delta"]):
            return None
        return newest_accounting.exact_epsilon(self.runs, rule.budget["delta"])


@dataclass(frozen=True)
class Verdict:
    """Exceeded rules, uncovered mechanisms, and sections in which a predicate failed."""

    exceeded: tuple[Rule, ...]
    uncovered: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        return not (self.exceeded or self.uncovered or self.failed)


@dataclass
class Model:
    """All releases and the active policy."""

    policy: PolicyDict = field(default_factory=dict)  # never changed in place
    releases: dict[str, PastRelease] = field(default_factory=dict)
    split: bool = True  # False: one block per rule, so all costs add up
    #: Returns the names of the rules that each rule of a policy implies, itself among them.
    implied_rules: Callable[[PolicyDict], Mapping[RuleName, set[RuleName]]] = lambda _: {}

    def rules(self, section: str) -> list[Rule]:
        """Return all rules of a section."""
        return expand_section(text(self.policy), section)

    def charged_mechanisms(self, past: PastRelease) -> list[PlacedMechanism]:
        """Return the charged mechanisms; an unresolvable release has every attribute and block."""
        return charged_mechanisms(text(self.policy), text(past.charged), text(past.meaning))

    def counted_mechanisms(self, rule: Rule) -> list[PlacedMechanism]:
        """Return the mechanisms charged to a rule; none for a per-release rule."""
        past = [p for p in self.releases.values() if p.status in COUNTED and not rule.each_release]
        return [m for p in past for m in self.charged_mechanisms(p)]

    def is_counted(self, rule: Rule, mechanism: PlacedMechanism) -> bool:
        """Return whether a mechanism is charged to a rule in any block."""
        if may_match(rule, mechanism):
            return True
        rules = self.rules("policies")
        implied = self.implied_rules(self.policy).get((rule.name, rule.unit), set())
        if rule.each_release or not implied or not predicate_fails(rules, [mechanism]):
            return False
        return any(may_match(r, mechanism) for r in rules if (r.name, r.unit) in implied)

    def costs_by_block(self, rule: Rule, past: Placed, requested: Placed = ()) -> list[BlockStatus]:
        """Return the costs of two lists of mechanisms to a rule per block, smallest block first."""
        scope = [
            [m for m in mechanisms if self.is_counted(rule, m)] for mechanisms in (past, requested)
        ]
        counted = [*scope[0], *scope[1]]
        groups: dict[tuple[bool, ...], list[Block]] = {}
        blocks: Iterable[Block] = [rule_blocks.EVERYWHERE]
        if self.split:
            blocks = rule_blocks.blocks(self.policy, rule, counted)
        for block in blocks:
            touched = tuple(rule_blocks.touches(m, block) for m in counted)
            groups.setdefault(touched, []).append(block)
        statuses = []
        for touched, equivalent in groups.items():
            present = list(compress(counted, touched))
            cost = [m.costs.get(rule.unit, UNKNOWN) for m in present]
            split_at = sum(touched[: len(scope[0])])
            runs = [m.runs.get(rule.unit) for m in present[split_at:]]
            statuses.append(BlockStatus(tuple(equivalent), cost[:split_at], cost[split_at:], runs))
        return statuses

    def exceeded_blocks(self, rule: Rule, requested: Placed) -> list[BlockStatus]:
        """Return the blocks touched by a release in which the rule is exceeded with it."""
        return [
            status
            for status in self.blocks_above_thresholds(rule, requested)
            if (epsilon := status.exact_epsilon(rule)) is None or epsilon > rule.budget["epsilon"]
        ]

    def blocks_above_thresholds(self, rule: Rule, requested: Placed) -> list[BlockStatus]:
        """Return the blocks touched by a release in which no certificate of a rule holds."""
        statuses = self.costs_by_block(rule, self.counted_mechanisms(rule), requested)
        return [s for s in statuses if s.cost and not twin.fits(rule, s.spent + s.cost)]

    def overspent_blocks(self, rule: Rule) -> list[BlockStatus]:
        """Return the blocks in which recorded releases exceed a rule."""
        statuses = self.costs_by_block(rule, self.counted_mechanisms(rule))
        return [s for s in statuses if not twin.fits(rule, s.spent)]

    def worst_block(self, rule: Rule, among: Sequence[BlockStatus]) -> BlockStatus:
        """Return the first block with the largest displayed loss after the release."""

        def number(status: BlockStatus) -> tuple[bool, Fraction]:
            after = displayed_loss(rule, status.spent + status.cost, grid(self.policy))
            first = next(iter(after.values()))
            return first is None, first or Fraction(0)

        return max(among, key=number)

    def most_used_block(self, rule: Rule, among: Sequence[BlockStatus]) -> BlockStatus:
        """Return the first block with the largest used share: of ε, ρ, μ or Rényi, or of δ.

        Without a stated δ it is the block with the largest displayed loss.
        """
        deltas = {id(status): self._stated_delta(rule, status) for status in among}
        if rule.delta is None or not any(deltas.values()):
            return self.worst_block(rule, among)

        def number(status: BlockStatus) -> tuple[float, float | Fraction]:
            spent = displayed_loss(rule, status.spent, grid(self.policy))
            first = next(iter(spent.values()))
            if first is None:
                return inf, inf
            limits = [limit for key, limit in rule.budget.items() if key != "delta"]
            shares = [_share(x, y) for x, y in zip(spent.values(), limits, strict=True)]
            return max(*shares, _share(deltas[id(status)], rule.delta or Fraction(0))), first

        return max(among, key=number)

    def _stated_delta(self, rule: Rule, status: BlockStatus) -> Fraction:
        """Return the sum of the stated δ; an unbounded loss states none."""
        spent = displayed_loss(rule, status.spent, grid(self.policy))
        delta = sum((delta for _, delta in status.spent), Fraction(0))
        return Fraction(0) if delta >= 1 and None in spent.values() else delta

    def verdict(self, body: Body) -> Verdict:
        """Return the verdict for a release after all charged ones."""
        requested = resolve_mechanisms(text(self.policy), text(body))
        if requested is None:
            raise Rejected("the release cannot be resolved")
        sections = {name: self.rules(name) for name in ("each-release", "policies")}
        failed = tuple(n for n, rules in sections.items() if predicate_fails(rules, requested))
        checked = [r for name, rules in sections.items() if name not in failed for r in rules]
        exceeded = [rule for rule in checked if self.exceeded_blocks(rule, requested)]
        uncovered = [
            f"mechanism {n}"
            for n, m in enumerate(requested, 1)
            if not predicate_fails(sections["policies"], [m])
            and not any(twin.matches(rule, m) for rule in sections["policies"])
        ]
        allow = self.policy["accounting"].get("uncovered") == "allow"
        return Verdict(tuple(exceeded), () if allow else tuple(uncovered), failed)

    def conflicts(self, policy: PolicyDict) -> list[Rule]:
        """Return the cumulative rules of another policy that recorded releases exceed."""
        other = replace(self, policy=policy)
        return [rule for rule in other.rules("policies") if other.overspent_blocks(rule)]

    def redefinitions(self, policy: PolicyDict) -> set[str]:
        """Return the partitions that another policy redefines; accepted ones are left out."""
        return {
            f"partition {name}"
            for past in self.releases.values()
            if past.status in COUNTED
            for own in past.meaning or ()
            for name in recorded_release.redefined_partitions(policy, own)
            if name not in recorded_release.redefined_partitions(self.policy, own)
            or policy["schema"]["partitions"][name] != self.policy["schema"]["partitions"][name]
        }

    def expire(self, now: datetime) -> None:
        """Expire the reservations whose time has passed."""
        for release, past in self.releases.items():
            if past.status == "reserved" and past.expires is not None and past.expires < now:
                self.releases[release] = replace(past, status="expired")

    def submit(self, body: Body, until: datetime | None = None) -> Verdict | None:
        """Return the verdict, or None for a repeated id; with `until`, reserve the release."""
        existing = self.releases.get(body["release"])
        if existing is not None:
            if existing.requested != body or existing.status in ("imported", "voided"):
                raise Rejected("the id is taken")
            return None
        verdict = self.verdict(body)
        status = "denied" if not verdict.allowed else "reserved" if until else "allowed"
        meaning = recorded_release.complete(self.policy, body)
        self.releases[body["release"]] = PastRelease(status, body, body, until, meaning)
        return verdict

    def end(self, release: str, used: Body | None = None, *, void: bool = False) -> None:
        """Commit or void a reservation."""
        past = self.releases.get(release)
        if past is None or past.status != "reserved":
            raise Rejected("the release is not reserved")
        if used is not None and used != past.charged:
            verdict = self.verdict(used)
            per_release = self.rules("each-release")
            exceeds_one = any(rule in per_release for rule in verdict.exceeded)
            if verdict.uncovered or verdict.failed or exceeds_one:
                raise Rejected("the used release would not have been allowed")
            run = replace(past, charged=used, meaning=recorded_release.complete(self.policy, used))
            if not self._costs_at_most(run, past):
                raise Rejected("the used release costs more than the reservation")
            if self._has_exact_rule(used) and not newest_accounting.is_part(
                used["mechanisms"], past.charged["mechanisms"]
            ):
                raise Rejected("a used mechanism is no part of the reservation")
            if not recorded_release.keeps_statements(run.meaning or (), past.meaning or ()):
                raise Rejected("the policy reads the used release otherwise than the reservation")
            past = run
        self.releases[release] = replace(past, status="voided" if void else "committed")

    def _has_exact_rule(self, body: Body) -> bool:
        """Return whether loss distributions may satisfy a rule that a release matches."""
        mechanisms = resolve_mechanisms(text(self.policy), text(body)) or []
        return any(
            rule.added and rule.budget["delta"] and twin.matches(rule, mechanism)
            for rule in self.rules("each-release")
            for mechanism in mechanisms
        )

    def _costs_at_most(self, first: PastRelease, second: PastRelease) -> bool:
        """Return whether no rule is charged more for the first release, in any block."""
        costs, limits = self.charged_mechanisms(first), self.charged_mechanisms(second)
        return all(
            is_at_most(status.cost, status.spent)
            for rule in self.rules("policies")
            for status in self.costs_by_block(rule, limits, costs)
        )

    def import_past(self, body: Body) -> None:
        """Charge an imported release."""
        existing = self.releases.get(body["release"])
        if existing is None:
            meaning = recorded_release.complete(self.policy, body)
            existing = PastRelease("imported", body, body, None, meaning)
            self.releases[body["release"]] = existing
        if existing.requested != body or existing.status in ("denied", "voided"):
            raise Rejected("the id is taken")

    def relabel(self, body: Body, *, has_approval: bool) -> None:
        """Replace the labels and attributes of a release, or state the unit that it left out."""
        existing = self.releases.get(body["release"])
        if existing is None or not _has_same_mechanisms(existing.charged, body):
            raise Rejected("the mechanisms are not the same")
        meaning = recorded_release.complete(self.policy, body)
        corrected = replace(existing, charged=body, meaning=meaning)
        if not has_approval and self._lowers_charge(existing, corrected):
            raise Rejected("one person may not lower a charge")
        self.releases[body["release"]] = corrected

    def _lowers_charge(self, old: PastRelease, new: PastRelease) -> bool:
        """Return whether a correction changes a statement, or a rule is charged less."""
        loses = recorded_release.loses_statements(old.meaning or (), new.meaning or ())
        return loses or not self._costs_at_most(old, new)


def text(value: object) -> str:
    """Return plain values as JSON, fractions as text; the key of the caches below."""
    return json.dumps(value, default=str)


@cache
def expand_section(policy: str, section: str) -> list[Rule]:
    """Return all rules of a section of a policy in JSON."""
    return twin.expand(json.loads(policy), section)


@cache
def charged_mechanisms(policy: str, body: str, meaning: str) -> list[PlacedMechanism]:
    """Return the mechanisms of a recorded release, or one that matches everything."""
    owns = json.loads(meaning)
    if owns is None:
        return resolve_mechanisms(policy, body) or [EVERYTHING]
    known, release = json.loads(policy), json.loads(body)
    if not all(set(own["attributes"]) <= known["schema"]["attributes"].keys() for own in owns):
        return [EVERYTHING]
    return [
        place(known, recorded_release.known_part(known, entry, own), own, release.get("by", ""))
        for entry, own in zip(release["mechanisms"], owns, strict=True)
    ]


def _has_same_mechanisms(recorded: Body, corrected: Body) -> bool:
    """Return whether only labels, attributes, and units that were left out differ."""
    return recorded.get("by") == corrected.get("by") and all(
        old["mechanism"] == new["mechanism"] and old.get("unit", new.get("unit")) == new.get("unit")
        for old, new in zip(recorded["mechanisms"], corrected["mechanisms"], strict=True)
    )


def may_match(rule: Rule, mechanism: PlacedMechanism) -> bool:
    """Return whether all predicates of a rule hold, or have no answer as a label is unknown."""
    return mechanism.unknown or all(may_hold(text, mechanism) for text in rule.predicates)


def may_hold(predicate: str, mechanism: PlacedMechanism) -> bool:
    """Return whether a predicate holds, or has no answer because a label is unknown."""
    try:
        return twin.predicate(predicate)(mechanism)
    except KeyError:
        return True


def predicate_fails(rules: Sequence[Rule], mechanisms: Sequence[Mechanism]) -> bool:
    """Return whether a predicate fails on a mechanism."""
    try:
        _ = [twin.predicate(text)(m) for r in rules for text in r.predicates for m in mechanisms]
    except KeyError:
        return True
    return False


def is_at_most(costs: Sequence[Cost], limits: Sequence[Cost]) -> bool:
    """Return whether the first sum is at most the second, in every certificate and in δ."""
    keys = {key for amounts, _ in limits for key in amounts}
    pairs = [(total(costs, key), total(limits, key)) for key in keys]
    within = all(b is None or (a is not None and a <= b) for a, b in pairs)
    delta, delta_limit = (sum((d for _, d in terms), Fraction(0)) for terms in (costs, limits))
    return not costs or (bool(limits) and delta <= delta_limit and within)


def total(costs: Sequence[Cost], key: Key) -> Fraction | None:
    """Return the sum in one certificate; None if infinite."""
    values = [amounts.get(key) for amounts, _ in costs]
    return None if None in values else sum((x for x in values if x is not None), Fraction(0))


def _share(amount: Fraction | None, limit: Fraction) -> float:
    """Return the used share of a limit; infinite above a limit of 0."""
    if amount is None or (amount and not limit):
        return inf
    return float(amount / limit) if amount else 0.0


def displayed_loss(
    rule: Rule, costs: Sequence[Cost], orders: Sequence[Fraction]
) -> dict[str, Fraction | None]:
    """Return a loss in the notion of the rule's budget; ε is the minimum over certificates."""
    budget = rule.budget
    if "epsilon" not in budget:
        return {
            f"renyi {float(key):g}" if isinstance(key, Fraction) else key: total(costs, key)
            for key in budget or ("rho",)
        }
    if rule.added:
        return {"epsilon": _newest_epsilon(rule, costs)}
    epsilons = [total(costs, "pure")]
    for order in orders if budget["delta"] else ():
        amount = total(costs, order)
        conversion_cost = twin.log_inverse(budget["delta"]) / (order - 1)
        epsilons.append(None if amount is None else amount + conversion_cost)
    return {"epsilon": min((x for x in epsilons if x is not None), default=None)}


def _newest_epsilon(rule: Rule, costs: Sequence[Cost]) -> Fraction | None:
    """Return the smallest ε over certificates under accounting defaults 3; None if infinite."""
    sums = [(total(costs, key), added) for key, added in rule.added.items()]
    epsilons = [max(amount + added, Fraction(0)) for amount, added in sums if amount is not None]
    sizes = (Fraction(0), *newest_accounting.SIZES) if rule.reserved else ()
    variances = [(total(costs, newest_accounting.key(size)), size) for size in sizes]
    finite = [amount + size for amount, size in variances if amount is not None]
    if finite:
        epsilon = newest_accounting.smallest_epsilon(min(finite), rule.reserved)
        epsilons += [] if epsilon is None else [epsilon]
    return min(epsilons, default=None)


def grid(policy: PolicyDict) -> tuple[Fraction, ...]:
    """Return the Rényi orders of (ε, δ) budgets."""
    orders = policy["accounting"].get("orders", "default")
    return twin.GRID if orders == "default" else tuple(map(twin.number, orders))


@cache
def resolve_mechanisms(policy_text: str, body_text: str) -> list[PlacedMechanism] | None:
    """Return the mechanisms of a release with costs per unit; None if it cannot be resolved.

    A partition that is also an attribute counts as used where it selects.
    """
    policy, body = json.loads(policy_text), json.loads(body_text)
    for entry in body["mechanisms"]:
        labels = label_values(policy["schema"]["labels"], entry.get("labels", {}))
        has_unit = entry["unit"] in policy["units"] if "unit" in entry else len(policy["units"]) < 2
        is_known = set(entry.get("attributes", ())) <= policy["schema"]["attributes"].keys()
        boxes = rule_blocks.region(policy, entry)
        if labels is None or boxes is None or not (is_known and has_unit):
            return None
    owns = recorded_release.complete(policy, body)
    return [
        place(policy, entry, own, body.get("by", ""))
        for entry, own in zip(body["mechanisms"], owns, strict=True)
    ]


def place(policy: PolicyDict, entry: Body, own: Body, by: str) -> PlacedMechanism:
    """Return a mechanism with its meaning under a policy that has its partitions."""
    boxes = rule_blocks.region(policy, entry) or ()
    used = frozenset(own["attributes"])
    used |= own["stable"].keys() & policy["schema"]["attributes"].keys()  # it selects by them
    fields = text(entry["mechanism"])
    orders = frozenset({*grid(policy), *map(Fraction, (2, 8))})
    newest = twin.is_newest(policy)
    if newest:
        orders |= newest_accounting.all_orders(grid(policy))
    sizes = {
        unit: steps(own, unit, definition.get("period"), entry)
        for unit, definition in policy["units"].items()
    }
    costs = {unit: cost(fields, k, orders, newest) for unit, k in sizes.items()}
    runs = {
        unit: newest_accounting.loss_run(entry["mechanism"], k, costs[unit][1])
        for unit, k in sizes.items()
        if newest and k is not None
    }
    labels = recorded_release.known_labels(policy["schema"]["labels"], own["labels"])
    plain = Mechanism(used, labels, entry["mechanism"]["kind"], by, costs)
    return PlacedMechanism(**vars(plain), boxes=boxes, time=entry.get("time"), runs=runs)


def label_values(definitions: Body, labels: Body) -> dict[str, Any] | None:
    """Return the labels for predicates; None if one is unknown, missing or has a wrong value."""
    values: dict[str, Any] = {}
    for name, definition in definitions.items():
        value = labels.get(name, definition.get("default"))
        value = None if value == [] else value
        listed = value if isinstance(value, list) else [value]
        if value is not None and not set(listed) <= set(definition["values"]):
            return None
        if value is None and definition.get("required"):
            return None
        if value is not None:
            values[name] = tuple(sorted(value)) if definition.get("many") else value
    return values if labels.keys() <= definitions.keys() else None


def steps(own: Body, unit: str, period: str | None, entry: Body) -> int | None:
    """Return the number of recorded units that must be removed to remove the data of one `unit`.

    A stated unit that also holds other data that is read is removed and its other part is added
    again (two steps). If the mechanism is additive, removing the part takes one step.
    """
    src, dst = own["period"], period
    if (own["unit"], src) == (unit, dst):
        return 1
    if dst is None and not is_closed(entry):
        return None
    days = days_read(entry)
    return max(
        sum(
            1 if entry.get("additive") or part <= block else 2
            for part in blocks(src, days)
            if part & block
        )
        for block in blocks(dst, days)
    )


def is_closed(entry: Body) -> bool:
    """Return whether the days that are read have a first and a last day."""
    return set(entry.get("time", ())) == {"from", "to"}


def days_read(entry: Body) -> frozenset[date]:
    """Return the days that are read; two long months represent an open interval."""
    if not is_closed(entry):
        return TWO_MONTHS
    first, last = (date.fromisoformat(entry["time"][key]) for key in ("from", "to"))
    return frozenset(first + timedelta(days=n) for n in range((last - first).days + 1))


def blocks(period: str | None, days: frozenset[date]) -> list[frozenset[date]]:
    """Group days by the blocks of a period."""
    return [block_days for _, block_days in rule_blocks.time_blocks(period, days)]


@cache
def cost(fields: str, k: int | None, orders: frozenset[Fraction], newest: bool = False) -> Cost:
    """Return the loss of a group of k per certificate, from 50 digits and rounded up to quanta."""
    parameters = json.loads(fields)
    if k is None:
        return UNKNOWN
    delta = Fraction(parameters.get("delta", 0))
    if k > 1 and delta:
        e = mp.mpf(parameters["epsilon"])
        grown = mp.mpf(delta.numerator) / delta.denominator * mp.expm1(k * e) / mp.expm1(e)
        delta = Fraction(mp.nstr(grown, 40))
    if delta >= 1:
        return UNKNOWN
    amounts = {key: x for key, x in curve(parameters, k, orders) if x is not None}
    if newest:
        amounts |= newest_costs(parameters, k, amounts)
    return {key: ceil(x / twin.QUANTUM) * twin.QUANTUM for key, x in amounts.items()}, delta


def newest_costs(
    parameters: Mapping[str, Any], k: int, amounts: Mapping[Key, Fraction]
) -> dict[Key, Fraction]:
    """Return the costs that differ under accounting defaults 3, and those beside reserves."""
    tighter: dict[Key, Fraction] = {}
    columns = []
    if "pure" in amounts:
        exact = amounts["pure"]
        e = newest_accounting.real(exact)
        columns.append(newest_accounting.pure_costs(e))
        if "scale" in parameters:
            tighter |= newest_accounting.laplace_notions(e)
            columns.append(newest_accounting.noise_costs(exact))
    mu_squared = tighter.get("mu", amounts.get("mu"))
    return {**tighter, **dict(newest_accounting.along_ladder(mu_squared, columns))}


def curve(
    parameters: Mapping[str, Any], k: int, orders: frozenset[Fraction]
) -> Iterator[tuple[Key, Fraction | None]]:
    """Return each certificate for a group of k (theory 3.1 to 3.3, 3.10, 4.1)."""
    if "renyi" in parameters:  # stated at 2 and 8 only, for k = 1 only
        two, eight = (Fraction(parameters["renyi"][order]) for order in ("2", "8"))
        for a in orders:
            between = ((8 - a) * two + (a - 2) * 7 * eight) / (6 * (a - 1))
            yield a, between if a <= 8 else None
    elif "rho" in parameters or "mu" in parameters or parameters["kind"] == "gaussian":
        mu = Fraction(parameters.get("mu", 0)) or 1 / Fraction(parameters.get("sigma", 1))
        rho = k * k * (Fraction(parameters["rho"]) if "rho" in parameters else mu**2 / 2)
        yield from (("rho", rho), ("mu", None if "rho" in parameters else 2 * rho))
        yield from ((order, rho * order) for order in orders)
    else:
        scale = parameters.get("scale")
        exact = k * (1 / Fraction(scale) if scale else Fraction(parameters["epsilon"]))
        e = mp.mpf(exact.numerator) / exact.denominator
        mu = 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(e / 2))
        yield from (("pure", exact), ("rho", Fraction(mp.nstr(e * mp.tanh(e / 2), 40))))
        yield "mu", None if Fraction(parameters.get("delta", 0)) else Fraction(mp.nstr(mu**2, 40))
        for order in orders:
            a = mp.mpf(order.numerator) / order.denominator
            response = (mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))
            noise = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
            moment = mp.log(noise if scale else response)
            yield order, min(exact, Fraction(mp.nstr(moment / (a - 1), 40)))
