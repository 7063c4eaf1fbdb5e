"""Naive decision point: a list of events, and every decision computed from scratch.

It follows docs/releases.md and theory 0.1, 1.4, 7 and 8, not the code: all rules and no pruning,
all releases and no running sums, fractions and no integers. A policy and a release body are plain
dicts. Units are `user`, or have a period, under add-remove; mechanisms are `declared`, `gaussian`
and `laplace`. Every rule is compared in each of its blocks (`places`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import compress
from math import ceil
from typing import Any

from mpmath import mp
from tests.reference import places
from tests.reference import rules as twin
from tests.reference.places import Block, Placed
from tests.reference.rules import Cost, Key, Mechanism, PolicyDict, Rule

Body = Mapping[str, Any]
UNKNOWN: Cost = ({}, Fraction(1))
COUNTED = ("allowed", "reserved", "committed", "expired", "imported")
EVERYTHING = Placed(unknown=True)
TWO_MONTHS = frozenset(date(2026, 7, 1) + timedelta(days=n) for n in range(62))


class Refused(Exception):
    """The model rejects the call; nothing changed."""


@dataclass(frozen=True)
class Past:
    """A release: status, requested mechanisms and charged mechanisms."""

    status: str
    asked: Body
    charged: Body
    expires: datetime | None = None


@dataclass(frozen=True)
class Standing:
    """Balance and cost of a rule in one block, and the other blocks with the same values."""

    blocks: tuple[Block, ...]
    spent: list[Cost]
    cost: list[Cost]


@dataclass(frozen=True)
class Verdict:
    """Exceeded rules, uncovered mechanisms, and sections in which a predicate failed."""

    broken: tuple[Rule, ...]
    uncovered: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def allowed(self) -> bool:
        return not (self.broken or self.uncovered or self.failed)


@dataclass
class Model:
    """All releases and the active policy."""

    policy: PolicyDict = field(default_factory=dict)  # never changed in place
    releases: dict[str, Past] = field(default_factory=dict)
    split: bool = True  # False: one block a rule, and everything adds up

    def rules(self, section: str) -> list[Rule]:
        """Return all rules of a section."""
        return spelled(text(self.policy), section)

    def charged(self, body: Body) -> list[Placed]:
        """Return the charged mechanisms; an unresolvable release has every attribute and block."""
        return charged(text(self.policy), text(body))

    def counted(self, rule: Rule) -> list[Placed]:
        """Return the mechanisms charged to a rule; none for a per-release rule."""
        past = [p for p in self.releases.values() if p.status in COUNTED and not rule.each_release]
        return [m for p in past for m in self.charged(p.charged)]

    def apart(
        self, rule: Rule, past: Sequence[Placed], asked: Sequence[Placed] = ()
    ) -> list[Standing]:
        """Return the costs of two lists of mechanisms to a rule per block, smallest block first."""
        scope = [[m for m in some if counts(rule, m)] for some in (past, asked)]
        every = [*scope[0], *scope[1]]
        alike: dict[tuple[bool, ...], list[Block]] = {}
        blocks = places.blocks(self.policy, rule, every) if self.split else [places.EVERYWHERE]
        for block in blocks:
            alike.setdefault(tuple(places.touches(m, block) for m in every), []).append(block)
        found = []
        for touched, same in alike.items():
            cost = [m.costs.get(rule.unit, UNKNOWN) for m in compress(every, touched)]
            before = sum(touched[: len(scope[0])])
            found.append(Standing(tuple(same), cost[:before], cost[before:]))
        return found

    def broken(self, rule: Rule, asked: Sequence[Placed]) -> list[Standing]:
        """Return the blocks touched by a release in which the rule is exceeded with it."""
        found = self.apart(rule, self.counted(rule), asked)
        return [s for s in found if s.cost and not twin.fits(rule, s.spent + s.cost)]

    def overspent(self, rule: Rule) -> list[Standing]:
        """Return the blocks in which recorded releases exceed a rule."""
        found = self.apart(rule, self.counted(rule))
        return [s for s in found if not twin.fits(rule, s.spent)]

    def worst(self, rule: Rule, among: Sequence[Standing]) -> Standing:
        """Return the first block with the largest displayed loss after the release."""

        def number(standing: Standing) -> tuple[bool, Fraction]:
            after = shown(rule, standing.spent + standing.cost, grid(self.policy))
            first = next(iter(after.values()))
            return first is None, first or Fraction(0)

        return max(among, key=number)

    def verdict(self, body: Body) -> Verdict:
        """Return the verdict for a release after all charged ones."""
        asked = read(text(self.policy), text(body))
        if asked is None:
            raise Refused("it cannot be read")
        sections = {name: self.rules(name) for name in ("each-release", "policies")}
        failed = tuple(name for name, rules in sections.items() if fails(rules, asked))
        every = [rule for name, rules in sections.items() if name not in failed for rule in rules]
        broken = [rule for rule in every if self.broken(rule, asked)]
        bare = [
            f"mechanism {n}"
            for n, m in enumerate(asked, 1)
            if not fails(sections["policies"], [m])
            and not any(twin.matches(rule, m) for rule in sections["policies"])
        ]
        allow = self.policy["accounting"].get("uncovered") == "allow"
        return Verdict(tuple(broken), () if allow else tuple(bare), failed)

    def conflicts(self, policy: PolicyDict) -> list[Rule]:
        """Return the cumulative rules of another policy that recorded releases exceed."""
        other = replace(self, policy=policy)
        return [rule for rule in other.rules("policies") if other.overspent(rule)]

    def expire(self, now: datetime) -> None:
        """Expire the reservations whose time has passed."""
        for release, past in self.releases.items():
            if past.status == "reserved" and past.expires is not None and past.expires < now:
                self.releases[release] = replace(past, status="expired")

    def submit(self, body: Body, until: datetime | None = None) -> Verdict | None:
        """Return the verdict, or None for a repeated id; with `until`, reserve the release."""
        known = self.releases.get(body["release"])
        if known is not None:
            if known.asked != body or known.status in ("imported", "voided"):
                raise Refused("the id is taken")
            return None
        verdict = self.verdict(body)
        status = "denied" if not verdict.allowed else "reserved" if until else "allowed"
        self.releases[body["release"]] = Past(status, body, body, until)
        return verdict

    def end(self, release: str, used: Body | None = None, *, void: bool = False) -> None:
        """Commit or void a reservation."""
        past = self.releases.get(release)
        if past is None or past.status != "reserved":
            raise Refused("it is not reserved")
        if used is not None:
            verdict = self.verdict(used)
            each = self.rules("each-release")
            if verdict.uncovered or verdict.failed or any(r in each for r in verdict.broken):
                raise Refused("it would not have been allowed")
            reserved, run = self.charged(past.charged), self.charged(used)
            for rule in self.rules("policies"):
                if not all(no_more(s.cost, s.spent) for s in self.apart(rule, reserved, run)):
                    raise Refused("more than reserved")
        status = "voided" if void else "committed"
        self.releases[release] = replace(past, status=status, charged=used or past.charged)

    def import_past(self, body: Body) -> None:
        """Charge an imported release."""
        known = self.releases.setdefault(body["release"], Past("imported", body, body))
        if known.asked != body or known.status in ("denied", "voided"):
            raise Refused("the id is taken")

    def relabel(self, body: Body) -> None:
        """Replace the labels and attributes of a release."""
        known = self.releases.get(body["release"])
        if known is None or _noise(known.charged) != _noise(body):
            raise Refused("not the same mechanisms")
        self.releases[body["release"]] = replace(known, charged=body)


def text(value: object) -> str:
    """Return plain values as JSON, fractions as text; the key of the caches below."""
    return json.dumps(value, default=str)


@cache
def spelled(policy: str, section: str) -> list[Rule]:
    """Return all rules of a section of a policy in JSON."""
    return twin.expand(json.loads(policy), section)


@cache
def charged(policy: str, body: str) -> list[Placed]:
    """Return the mechanisms of a recorded release, or one that matches everything."""
    asked = read(policy, body)
    failed = asked is None or fails(spelled(policy, "policies"), asked)
    return [EVERYTHING] if asked is None or failed else asked


def _noise(body: Body) -> list[Any]:
    return [said["mechanism"] for said in body["mechanisms"]]


def counts(rule: Rule, mechanism: Placed) -> bool:
    """Return whether a mechanism is charged to a rule in any block."""
    return mechanism.unknown or twin.matches(rule, mechanism)


def fails(rules: Sequence[Rule], asked: Sequence[Mechanism]) -> bool:
    """Return whether a predicate fails on a mechanism."""
    try:
        _ = [twin.predicate(text)(m) for r in rules for text in r.predicates for m in asked]
    except KeyError:
        return True
    return False


def no_more(some: Sequence[Cost], others: Sequence[Cost]) -> bool:
    """Return whether the first sum is at most the second, in every certificate and in δ."""
    keys = {key for amounts, _ in others for key in amounts}
    pairs = [(total(some, key), total(others, key)) for key in keys]
    less = all(b is None or (a is not None and a <= b) for a, b in pairs)
    delta, most = (sum((d for _, d in costs), Fraction(0)) for costs in (some, others))
    return not some or (bool(others) and delta <= most and less)


def total(costs: Sequence[Cost], key: Key) -> Fraction | None:
    """Return the sum in one certificate; None if infinite."""
    found = [amounts.get(key) for amounts, _ in costs]
    return None if None in found else sum((x for x in found if x is not None), Fraction(0))


def shown(
    rule: Rule, costs: Sequence[Cost], orders: Sequence[Fraction]
) -> dict[str, Fraction | None]:
    """Return a loss in the notion of the rule's budget; ε is the minimum over certificates."""
    budget = rule.budget
    if "epsilon" not in budget:
        return {
            f"renyi {float(key):g}" if isinstance(key, Fraction) else key: total(costs, key)
            for key in budget or ("rho",)
        }
    found = [total(costs, "pure")]
    for order in orders if budget["delta"] else ():
        amount = total(costs, order)
        taken = twin.log_of_inverse(budget["delta"]) / (order - 1)
        found.append(None if amount is None else amount + taken)
    return {"epsilon": min((x for x in found if x is not None), default=None)}


def grid(policy: PolicyDict) -> tuple[Fraction, ...]:
    """Return the Rényi orders of (ε, δ) budgets."""
    said = policy["accounting"].get("orders", "default")
    return twin.GRID if said == "default" else tuple(map(twin.number, said))


@cache
def read(policy_text: str, body_text: str) -> list[Placed] | None:
    """Return the mechanisms of a release with costs per unit; None if it cannot be resolved.

    A partition that is also an attribute counts as used where it selects.
    """
    policy, body, found = json.loads(policy_text), json.loads(body_text), []
    for said in body["mechanisms"]:
        labels = labels_of(policy["schema"]["labels"], said.get("labels", {}))
        used, stated = frozenset(said.get("attributes", ())), said.get("unit", "user")
        known = used <= policy["schema"]["attributes"].keys() and stated in policy["units"]
        boxes = places.region(policy, said)
        if labels is None or boxes is None or not known:
            return None
        used |= {n for box in boxes for n in box} & policy["schema"]["attributes"].keys()
        fields = text(said["mechanism"])
        orders = frozenset({*grid(policy), *map(Fraction, (2, 8))})
        costs = {
            unit: cost(fields, steps(policy["units"], stated, unit, said), orders)
            for unit in policy["units"]
        }
        kind = said["mechanism"]["kind"]
        facts = Mechanism(used, labels, kind, body.get("by", ""), costs)
        found.append(Placed(**vars(facts), boxes=boxes, time=said.get("time")))
    return found


def labels_of(known: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the labels for predicates; None if one is unknown, missing or has a wrong value."""
    facts: dict[str, Any] = {}
    for name, about in known.items():
        value = said.get(name, [] if about.get("many") else about.get("default"))
        listed = value if isinstance(value, list) else [value]
        if value is not None and not set(listed) <= set(about["values"]):
            return None
        if value is None and about.get("required"):
            return None
        if value is not None:
            facts[name] = tuple(sorted(value)) if about.get("many") else value
    return facts if said.keys() <= known.keys() else None


def steps(units: Mapping[str, Any], stated: str, unit: str, said: Body) -> int | None:
    """Return the number of stated units that must be removed to remove the data of one `unit`.

    One that also holds other data that is read is removed, and its rest added again; a mechanism
    that is additive may lose a part in one step.
    """
    src, dst = units[stated].get("period"), units[unit].get("period")
    if stated == unit:
        return 1
    if dst is None and not is_closed(said):
        return None
    days = days_of(said)
    return max(
        sum(
            1 if said.get("additive") or part <= block else 2
            for part in blocks(src, days)
            if part & block
        )
        for block in blocks(dst, days)
    )


def is_closed(said: Body) -> bool:
    """Return whether the days that are read have a first and a last day."""
    return set(said.get("time", ())) == {"from", "to"}


def days_of(said: Body) -> frozenset[date]:
    """Return the days that are read; two long months represent an open interval."""
    if not is_closed(said):
        return TWO_MONTHS
    first, last = (date.fromisoformat(said["time"][key]) for key in ("from", "to"))
    return frozenset(first + timedelta(days=n) for n in range((last - first).days + 1))


def blocks(period: str | None, days: frozenset[date]) -> list[frozenset[date]]:
    """Group days by the blocks of a period."""
    return [held for _, held in places.spans(period, days)]


@cache
def cost(fields: str, k: int | None, orders: frozenset[Fraction]) -> Cost:
    """Return the loss of a group of k per certificate, from 50 digits, rounded up to quanta."""
    said = json.loads(fields)
    if k is None:
        return UNKNOWN
    delta = Fraction(said.get("delta", 0))
    if k > 1 and delta:
        e = mp.mpf(said["epsilon"])
        grown = mp.mpf(delta.numerator) / delta.denominator * mp.expm1(k * e) / mp.expm1(e)
        delta = Fraction(mp.nstr(grown, 40))
    if delta >= 1:
        return UNKNOWN
    amounts = {key: x for key, x in curve(said, k, orders) if x is not None}
    return {key: ceil(x / twin.QUANTUM) * twin.QUANTUM for key, x in amounts.items()}, delta


def curve(
    said: Mapping[str, Any], k: int, orders: frozenset[Fraction]
) -> Iterator[tuple[Key, Fraction | None]]:
    """Return each certificate for a group of k (theory 3.1 to 3.3, 3.10, 4.1)."""
    if "renyi" in said:  # stated at 2 and 8 only, for k = 1 only
        two, eight = (Fraction(said["renyi"][order]) for order in ("2", "8"))
        for a in orders:
            between = ((8 - a) * two + (a - 2) * 7 * eight) / (6 * (a - 1))
            yield a, between if a <= 8 else None
    elif "rho" in said or "mu" in said or said["kind"] == "gaussian":
        mu = Fraction(said.get("mu", 0)) or 1 / Fraction(said.get("sigma", 1))
        rho = k * k * (Fraction(said["rho"]) if "rho" in said else mu**2 / 2)
        yield from (("rho", rho), ("mu", None if "rho" in said else 2 * rho))
        yield from ((order, rho * order) for order in orders)
    else:
        exact = k * (1 / Fraction(said["scale"]) if "scale" in said else Fraction(said["epsilon"]))
        e = mp.mpf(exact.numerator) / exact.denominator
        mu = 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(e / 2))
        yield from (("pure", exact), ("rho", Fraction(mp.nstr(e * mp.tanh(e / 2), 40))))
        yield "mu", None if Fraction(said.get("delta", 0)) else Fraction(mp.nstr(mu**2, 40))
        for order in orders:
            a = mp.mpf(order.numerator) / order.denominator
            response = (mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))
            noise = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
            moment = mp.log(noise if "scale" in said else response)
            yield order, min(exact, Fraction(mp.nstr(moment / (a - 1), 40)))
