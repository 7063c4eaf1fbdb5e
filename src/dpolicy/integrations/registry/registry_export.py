"""Conversion of releases to entries of the OpenDP/NIST registry of deployments.

An entry consists of plain values in the format of opendp/deployments-registry-data,
`deployments-schema.yaml` (docs/integrations/registry.md). It states the loss of one release for one
unit, rounded up, and contains the release and its meaning in lines of `additional_information`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import yaml

from dpolicy.decisions.release_totals import all_units, total_costs, total_runs
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.privacy.conversion import zcdp_to_epsilon
from dpolicy.privacy.cost_report import CostReport, round_up_to_printed_float
from dpolicy.privacy.loss_distribution.unit_runs import LossRuns, certify_runs
from dpolicy.releases.body import Body
from dpolicy.releases.meaning import ReleaseMeaning, meaning_to_text, write_out
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy

#: Start of the line of `additional_information` that contains the release.
EMBEDDED_RELEASE_PREFIX = "dpolicy-release: "

#: Start of the line that contains the meaning of the release: definitions of the names it uses.
EMBEDDED_MEANING_PREFIX = "dpolicy-meaning: "

#: Value of fields that are not in the ledger.
PLACEHOLDER = "to be filled in"

#: Types of organisation in the schema of the registry.
CURATOR_TYPES = ("Government", "Industry", "Nonprofit")

#: δ of the stated ε if the policy has none.
DEFAULT_DELTA = Fraction("1e-7")

#: Mechanisms that train a model.
_TRAINING_KINDS = {"dp-sgd", "tree-aggregation", "pate"}


def registry_entry(
    release: Release,
    meaning: ReleaseMeaning,
    policy: CompiledPolicy,
    on: str,
    status: str,
    curator: tuple[str, str],
) -> dict[str, Any]:
    """Return the entry of a release that was charged on the day `on`.

    `meaning` is that of its record. `curator` is the name and the type of the publishing
    organisation.
    """
    loss = _loss_fields(release, meaning, policy)
    is_training = {m.kind for m in release.mechanisms} <= _TRAINING_KINDS
    is_dynamic = any(request.days_read is not None for request in release.mechanisms)
    deployment = {
        "basic": {
            "name": release.id,
            "data_curators": [{"data_curator_name": curator[0], "data_curator_type": curator[1]}],
            "description": f"Release {release.id}, {status}. Its purpose is {PLACEHOLDER}.",
            "intended_use": PLACEHOLDER,
            "data_product_type": "Machine learning model" if is_training else "Summary statistics",
            "data_product_region": PLACEHOLDER,
            "publication_date": on,
        },
        **loss,
        "deployment_model": {
            "model_name": "Central",
            "release_type": "One release",
            "data_source_type": "Dynamic" if is_dynamic else "Static",
            "access_type": "Non-interactive",
        },
        "implementation": _implementation_fields(release.body, meaning),
        "administrative": {
            "status": "Draft",
            "registry_authors": [release.by or "dpolicy"],
            "tier": 2 if loss else 1,
        },
    }
    return {"url_slug": url_slug(release.id), "deployment": deployment}


def entry_text(entry: Mapping[str, Any]) -> str:
    """Return an entry as a YAML document."""
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=10**9)


def url_slug(name: str) -> str:
    """Convert a name to a slug; a name that is not a slug gets a hash suffix to stay unique."""
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:90]
    digest = hashlib.sha256(name.encode("utf-8")).hexdigest()[:8]
    return slug if slug == name else f"{slug}-{digest}".strip("-")


def _loss_fields(
    release: Release, meaning: ReleaseMeaning, policy: CompiledPolicy
) -> dict[str, Any]:
    """Return the loss for the first unit with a bound; units that the mechanisms state come first.

    Return an empty dict if no unit has a bound.
    """
    costs, units = total_costs(release, meaning, policy), all_units(meaning, policy)
    runs = total_runs(release, meaning, policy)
    delta = policy.policy_set.accounting.delta or DEFAULT_DELTA
    stated = [own.unit for own in meaning.mechanisms]
    for name in dict.fromkeys([*stated, *costs]):
        parameters = _privacy_parameters(costs[name], runs[name], delta)
        if parameters is None:
            continue
        variant, values = parameters
        unit = units[name]
        period = "all time" if unit.period is None else f"one {unit.period}"
        details = "; ".join(
            f"{other}: {_format_bounds(c, runs[other], delta)}" for other, c in costs.items()
        )
        return {
            "dp_variant": {"variant_name": variant},
            "privacy_loss": {
                "privacy_unit": name,
                "privacy_unit_details": f"{unit.relation} of one {unit.entity}, for {period}",
                "privacy_parameters": values,
                "privacy_parameters_details": f"Upper bounds for every unit: {details}.",
            },
        }
    return {}


def _smallest_epsilon(
    costs: CostReport, runs: Sequence[LossRuns], delta: Fraction
) -> tuple[float | None, bool]:
    """Return the smallest ε at δ, and whether a loss distribution certifies it."""
    converted, certified = costs.epsilon(delta), certify_runs(runs, delta)
    if certified is None or (converted is not None and converted <= certified):
        return converted, False
    return round_up_to_printed_float(certified), True


def _format_bounds(costs: CostReport, runs: Sequence[LossRuns], delta: Fraction) -> str:
    """Format all bounds of a loss as text, rounded up."""
    at_delta = max(delta, 2 * costs.delta)
    epsilon, is_exact = _smallest_epsilon(costs, runs, at_delta)
    method = ", exact (loss distribution)" * is_exact
    bounds = {
        "pure epsilon": None if costs.pure is None else round_up_to_printed_float(costs.pure),
        "rho": None if costs.rho is None else round_up_to_printed_float(costs.rho),
        f"epsilon at delta {round_up_to_printed_float(at_delta)!r}": epsilon,
    }
    parts = [f"{name} {value!r}" for name, value in bounds.items() if value is not None]
    return ", ".join(parts) + method or "no bound"


def _implementation_fields(recorded: Body, meaning: ReleaseMeaning) -> dict[str, Any]:
    body = write_out(recorded, meaning)
    lines = (
        EMBEDDED_RELEASE_PREFIX + encode_canonical(body).decode("utf-8"),
        EMBEDDED_MEANING_PREFIX + meaning_to_text(meaning),
    )
    counts = Counter(
        encode_canonical(fields["mechanism"]).decode("utf-8") for fields in body["mechanisms"]
    )
    return {
        "mechanisms": "; ".join(f"{count} x {text}" for text, count in counts.items()),
        "composition": "The losses of all mechanisms are added, separately in every notion.",
        "additional_information": "\n".join(lines),
    }


def _privacy_parameters(
    costs: CostReport, runs: Sequence[LossRuns], delta: Fraction
) -> tuple[str, dict[str, float]] | None:
    """Return the variant and parameters that state a loss, rounded up; None without a bound.

    The order of preference is pure ε, (ε, δ) as declared, and ρ. If ε at δ is less than half of the
    ε that follows from ρ, (ε, δ) is stated instead of ρ.
    """
    if costs.pure is not None:
        pure = {"epsilon": round_up_to_printed_float(costs.pure)}
        if not costs.delta:
            return "Pure DP", pure
        return "Approximate DP", {**pure, "delta": round_up_to_printed_float(costs.delta)}
    at_delta = max(delta, 2 * costs.delta)
    epsilon, _ = _smallest_epsilon(costs, runs, at_delta)
    if epsilon is None:
        return None
    rho = None if costs.delta else costs.rho
    if rho is not None and 2 * epsilon >= zcdp_to_epsilon(rho, at_delta):
        return "Zero-concentrated DP", {"rho": round_up_to_printed_float(rho)}
    return "Approximate DP", {"epsilon": epsilon, "delta": round_up_to_printed_float(at_delta)}
