"""Releases → entries of the OpenDP/NIST deployments registry, and entries → past releases.

An entry is plain values in the shape of opendp/deployments-registry-data, `deployments-schema.yaml`
(docs/integrations/registry.md). It states the loss of one release for one unit, rounded up, and
carries the release itself in a line of its `additional_information`. An entry that carries none is
read as a `declared` loss of everybody's data and every attribute: what it does not say is charged.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import yaml

from dpolicy.decisions.resolution import mechanism_unit
from dpolicy.errors import InvalidValue, PolicyRejected
from dpolicy.ledger.canonical import decode_canonical, encode_canonical
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.privacy.cost_report import CostReport, report_costs, round_up_to_printed_float
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.body import Body, to_plain_body
from dpolicy.releases.release import MechanismRequest, Release
from dpolicy.rules.compiler import CompiledPolicy

#: Every code, and what it means for whoever wrote the entry.
PROBLEMS: Mapping[str, str] = {
    "G001": "a key is missing, or its value is of the wrong type",
    "G002": "the privacy parameters do not say how large the loss is",
    "G003": "the privacy unit is none of the policy's",
    "G004": "an entry of many releases, or nobody knows how many, states one loss",
    "G005": "the release that the entry carries cannot be read",
    "G006": "the release that the entry carries costs less than the entry states",
}

#: The line of `additional_information` that carries the release.
EMBEDDED_RELEASE_PREFIX = "dpolicy-release: "

#: What only people know.
PLACEHOLDER = "to be filled in"

#: What a curator can be.
CURATOR_TYPES = ("Government", "Industry", "Nonprofit")

#: What each variant is stated in. Older entries spell one of them without its hyphen.
_STATED = {
    "pure dp": ("epsilon",),
    "approximate dp": ("epsilon", "delta"),
    "zero-concentrated dp": ("rho",),
    "zero concentrated dp": ("rho",),
    "renyi dp": ("epsilon", "delta"),
    "gaussian dp": ("mu",),
}
#: Where entries of different years keep their name and the deployment model.
_NAMES, _MODELS = (("basic",), ("product",), ()), ("deployment_model", "model")

#: The δ where the policy says none, and the last digits of floats that are let pass.
_DELTA, _SLACK = Fraction("1e-7"), Fraction(1, 10**9)

_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?")


def registry_entry(
    release: Release, policy: CompiledPolicy, on: str, status: str, curator: tuple[str, str]
) -> dict[str, Any]:
    """The entry of a release that was charged `on` a day; `curator` is a name and a type."""
    loss = _loss(release, policy)
    learning = {m.kind for m in release.mechanisms} <= {"dp-sgd", "tree-aggregation", "pate"}
    moving = any(request.days_read is not None for request in release.mechanisms)
    about = {
        "basic": {
            "name": release.id,
            "data_curators": [{"data_curator_name": curator[0], "data_curator_type": curator[1]}],
            "description": f"Release {release.id}, {status}. Its purpose is {PLACEHOLDER}.",
            "intended_use": PLACEHOLDER,
            "data_product_type": "Machine learning model" if learning else "Summary statistics",
            "data_product_region": PLACEHOLDER,
            "publication_date": on,
        },
        **loss,
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release",
            "data_source_type": "Dynamic" if moving else "Static",
            "access_type": "Non-interactive",
        },
        "implementation": _implementation(release),
        "administrative": {
            "status": "Draft",
            "registry_authors": [release.by or "dpolicy"],
            "tier": 2 if loss else 1,
        },
    }
    return {"url_slug": _slug(release.id), "deployment": about}


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry as a YAML document."""
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=10**9)


def _loss(release: Release, policy: CompiledPolicy) -> dict[str, Any]:
    """The loss for the first unit that has a bound, beginning with those that are stated."""
    costs, delta = _totals(release, policy), policy.policy_set.accounting.delta or _DELTA
    own = [mechanism_unit(request, policy.units) or "" for request in release.mechanisms]
    for name in dict.fromkeys([*own, *costs] if costs else []):
        found = _parameters(costs[name], delta)
        if found is None:
            continue
        unit = policy.checked_policy_set.vocabulary.units[name]
        period = "all time" if unit.period is None else f"one {unit.period}"
        told = "; ".join(f"{other}: {_told(known, delta)}" for other, known in costs.items())
        return {
            "dp_variant": {"variant_name": found[0]},
            "privacy_loss": {
                "privacy_unit": name,
                "privacy_unit_details": f"{unit.relation} of one {unit.entity}, for {period}",
                "privacy_parameters": found[1],
                "privacy_parameters_details": f"Upper bounds for every unit: {told}.",
            },
        }
    return {}


def _told(costs: CostReport, delta: Fraction) -> str:
    """What is known of a loss, for people."""
    at = max(delta, 2 * costs.delta)
    known = {"pure epsilon": _number(costs.pure), "rho": _number(costs.rho)}
    known[f"epsilon at delta {round_up_to_printed_float(at)!r}"] = costs.epsilon(at)
    parts = [f"{name} {value!r}" for name, value in known.items() if value is not None]
    return ", ".join(parts) or "no bound"


def _implementation(release: Release) -> dict[str, Any]:
    kinds = Counter(
        encode_canonical(said["mechanism"]).decode("utf-8") for said in release.body["mechanisms"]
    )
    return {
        "mechanisms": "; ".join(f"{count} x {text}" for text, count in kinds.items()),
        "composition": "The losses of all mechanisms are added, in every notion by itself.",
        "additional_information": EMBEDDED_RELEASE_PREFIX
        + encode_canonical(release.body).decode("utf-8"),
    }


def _slug(name: str) -> str:
    """A name as an address; names that are none are told apart by a few digits."""
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:90]
    digits = hashlib.sha256(name.encode("utf-8")).hexdigest()[:8]
    return slug if slug == name else f"{slug}-{digits}".strip("-")


def _parameters(costs: CostReport, delta: Fraction) -> tuple[str, dict[str, float]] | None:
    """Pure ε, else (ε, δ) as it was stated, else ρ, unless ε at δ is known to be far below it."""
    if costs.pure is not None:
        stated = {"epsilon": round_up_to_printed_float(costs.pure)}
        if not costs.delta:
            return "Pure DP", stated
        return "Approximate DP", {**stated, "delta": round_up_to_printed_float(costs.delta)}
    at = max(delta, 2 * costs.delta)
    epsilon = costs.epsilon(at)
    if epsilon is None:
        return None
    rho = None if costs.delta else costs.rho
    if rho is not None and 2 * epsilon >= zcdp_to_epsilon(rho, at):
        return "Zero-concentrated DP", {"rho": round_up_to_printed_float(rho)}
    return "Approximate DP", {"epsilon": epsilon, "delta": round_up_to_printed_float(at)}


def _totals(release: Release, policy: CompiledPolicy) -> dict[str, CostReport]:
    """The loss of all mechanisms together, by unit; nothing if a unit is not the policy's."""
    units = policy.checked_policy_set.vocabulary.units
    named = {
        name for m in release.mechanisms for name in (mechanism_unit(m, units), *m.restatements)
    }
    if not named <= units.keys():
        return {}
    rows = [_costs(request, policy) for request in release.mechanisms]
    return {name: _sum(found) for name, *found in zip(units, *rows, strict=True)}


def _costs(request: MechanismRequest, policy: CompiledPolicy) -> list[CostReport]:
    vocabulary = policy.checked_policy_set.vocabulary
    units, name = vocabulary.units, mechanism_unit(request, vocabulary.units) or ""
    relation, place = request.relation or units[name].relation, list(units).index(name)
    every = tuple(units.values())
    setting = GroupContext(every, request.additive, request.days_read, vocabulary.covers)
    return report_costs(request.mechanism, place, request.restatements, relation, setting, ())


def _sum(costs: Sequence[CostReport]) -> CostReport:
    curves = zip(*(found.renyi for found in costs), strict=True)
    return CostReport(
        _added([found.pure for found in costs]),
        _added([found.rho for found in costs]),
        _added([found.mu_squared for found in costs]),
        tuple((points[0][0], _added([value for _, value in points])) for points in curves),
        sum((found.delta for found in costs), Fraction(0)),
    )


def _added(amounts: Sequence[Fraction | None]) -> Fraction | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Fraction(0)) if len(known) == len(amounts) else None


def _number(value: Fraction | None) -> float | None:
    return None if value is None else round_up_to_printed_float(value)


def is_registry_entry(value: object) -> bool:
    """Whether plain values are an entry, by their keys."""
    return isinstance(value, Mapping) and "deployment" in value and "release" not in value


@dataclass(frozen=True, slots=True)
class RegistryImportOptions:
    """What people say of an entry that it does not say itself.

    Which of the policy's units is meant, what neighbours are there, how often an entry of many
    releases was published for one and the same unit, and the labels that the policy asks for.
    """

    unit: str | None = None
    relation: NeighbouringRelation = NeighbouringRelation.ADD_REMOVE
    times: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def release_body_from_entry(
    entry: Mapping[str, Any], policy: CompiledPolicy, options: RegistryImportOptions
) -> tuple[Body | None, tuple[InvalidValue, ...]]:
    """The release that an entry says has happened, or None with every problem found."""
    if not is_registry_entry(entry):
        return None, (InvalidValue("G001", "it is no entry: it has no `deployment`"),)
    reading = _Reading(to_plain_body(entry), policy, options)
    text = reading.embedded_release_text()
    body = reading.declared_release() if text is None else reading.parse_embedded_release(text)
    return (None, tuple(reading.problems)) if reading.problems else (body, ())


class _Reading:
    """Takes what is needed out of one entry and collects what is wrong with it."""

    def __init__(
        self, entry: Mapping[str, Any], policy: CompiledPolicy, options: RegistryImportOptions
    ) -> None:
        self._entry, self._policy, self._told = entry, policy, options
        self.problems: list[InvalidValue] = []

    def embedded_release_text(self) -> str | None:
        """The text of the release that an entry carries, if it does."""
        lines = str(self._at("deployment", "implementation", "additional_information")).split("\n")
        texts = [
            line.removeprefix(EMBEDDED_RELEASE_PREFIX)
            for line in lines
            if line.startswith(EMBEDDED_RELEASE_PREFIX)
        ]
        if len(texts) > 1:
            self._report("G005", f"it carries {len(texts)} releases; an entry is one")
        return texts[0] if texts else None

    def parse_embedded_release(self, text: str) -> Body | None:
        """The release that an entry carries, which may not cost less than the entry states."""
        if self._told.times is not None:
            self._report("G004", "it carries its release, which happened once")
        try:
            release = parse_request(decode_canonical(text.encode("utf-8", "replace")))
            costs = _totals(release, self._policy)
        except (PolicyRejected, InvalidValue, ValueError, TypeError, RecursionError) as error:
            self._report(
                "G005", f"the line `{EMBEDDED_RELEASE_PREFIX.strip()}` holds no release: {error}"
            )
            return None
        if costs and self._at("deployment", "privacy_loss") is not None:
            name, stated = self._unit(), self._stated()
            if name is not None and stated is not None and _below(costs[name], stated):
                line = EMBEDDED_RELEASE_PREFIX.strip()
                help_ = f"help: without the line `{line}` it is charged as stated"
                self._report("G006", f"its release costs `{name}` less than it states; {help_}")
        return release.body

    def declared_release(self) -> Body | None:
        """The loss that an entry states, for everybody, all time and every attribute."""
        name, stated = self._unit(), self._stated()
        fields = {"kind": "declared", **(stated or {})}
        if self._told.times is not None:
            fields["count"] = Fraction(self._told.times)
        elif self._many():
            help_ = "help: `--times` says how often for the same unit"
            self._report("G004", f"it does not say that it was published once; {help_}")
        if stated is not None:
            self.problems += parse_mechanism(fields)[1]
        said = {
            "name": "registry entry",
            "mechanism": fields,
            "unit": name,
            "relation": str(self._told.relation),
            "attributes": sorted(self._policy.checked_policy_set.vocabulary.schema.attributes),
            "labels": self._told.labels,
        }
        return {"release": self._name(), "mechanisms": [said]}

    def _name(self) -> str:
        """The id: the slug, or what the deployment is called."""
        places = (("url_slug",), *(("deployment", *place, "name") for place in _NAMES))
        names = [self._at(*place) for place in places]
        found = next((name for name in names if isinstance(name, str) and name.strip()), None)
        if found is None:
            self._report("G001", "it has no `url_slug` and no `name`")
        return _slug(found or "")

    def _many(self) -> bool:
        keys = [(part, key) for part in _MODELS for key in ("release_type", "is_many_release")]
        said = [self._at("deployment", *key) for key in keys]
        known = [value for value in said if value is not None]
        return not known or any(value not in (False, "One release", "One-shot") for value in known)

    def _unit(self) -> str | None:
        """The policy's unit that an entry means, by its name."""
        units = self._policy.checked_policy_set.vocabulary.units
        said = self._told.unit or self._at("deployment", "privacy_loss", "privacy_unit")
        if not isinstance(said, str):
            self._report("G001", "it has no `privacy_unit`; help: `--unit` says which is meant")
            return None
        meant = [unit for unit in units if unit == said]
        meant = meant or [unit for unit in units if _folded(unit) == _folded(said)]
        if len(meant) == 1:
            return meant[0]
        help_ = f"help: `--unit` says which of {', '.join(f'`{unit}`' for unit in units)} is meant"
        self._report("G003", f"the policy has no unit called `{said}`; {help_}")
        return None

    def _stated(self) -> dict[str, Any] | None:
        """The fields of a declared loss, by the variant and the parameters of an entry."""
        given = self._at("deployment", "privacy_loss", "privacy_parameters")
        if not isinstance(given, Mapping):
            self._report("G001", "it has no `privacy_parameters`")
            return None
        numbers = {name: _exact(value) for name, value in given.items() if value is not None}
        for name, value in numbers.items():
            if value is None:
                self._report("G001", f"`{name}` must be a number, not `{given[name]}`")
        if None in numbers.values():
            return None
        variant = self._at("deployment", "dp_variant", "variant_name")
        variant = variant or self._at("deployment", "dp_flavor", "name")
        fields = _fields(str(variant or "").lower(), numbers)
        if fields is None:
            listed = ", ".join(f"`{name}`" for name in numbers) or "nothing"
            self._report("G002", f"{listed} under `{variant or 'no variant'}` is no loss we know")
        return fields

    def _at(self, *keys: str) -> Any:
        """A value inside of the entry, or None."""
        found: Any = self._entry
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def _report(self, code: str, message: str) -> None:
        self.problems.append(InvalidValue(code, message))


def _fields(variant: str, given: Mapping[str, Fraction | None]) -> dict[str, Any] | None:
    """The parameters that make up a loss; an ε with δ is one under every variant with a name."""
    if variant not in _STATED and variant:
        return None
    wanted = [_STATED[variant]] if variant else [("rho",), ("mu",)]
    for names in (*wanted, ("epsilon", "delta")):
        if all(name in given for name in names):
            if "epsilon" in names:
                return {name: given[name] for name in ("epsilon", "delta") if name in given}
            # A δ beside ρ is that of an ε that was converted, or a leak that ρ does not hold.
            leaks = bool(given.get("delta")) and "epsilon" not in given
            return None if leaks else {name: given[name] for name in names}
    return None


def _below(costs: CostReport, stated: Mapping[str, Any]) -> bool:
    """Whether a loss is below what is stated, in the notion that is stated."""
    at = stated.get("delta", Fraction(0))
    known = {"epsilon": costs.epsilon(at), "rho": _number(costs.rho), "mu": costs.mu}
    return any(
        found is not None and Fraction(found) < stated.get(notion, 0) * (1 - _SLACK)
        for notion, found in known.items()
    )


def _exact(value: object) -> Fraction | None:
    """A number; δ may be written as text."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return Fraction(value)
    return value if isinstance(value, Fraction) else None


def _folded(name: str) -> str:
    """A unit's name without what people spell differently: `User level` is `user`."""
    return re.sub(r"[\s_-]+", "-", re.sub(r"[\s_-]*level$", "", name.strip().lower()))
