"""The builders of releases cannot differ from the release format and the registry of kinds."""

from __future__ import annotations

import inspect
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import dpolicy
from dpolicy.privacy.mechanisms.mechanism import COMMON_PARAMETERS
from dpolicy.privacy.mechanisms.registry import MECHANISM_KINDS, parse_mechanism
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.python import mechanism_builders, release_builders
from dpolicy.releases.python.mechanism_builders import KindName, ParameterMapping
from dpolicy.releases.python.python_values import to_plain_body
from dpolicy.releases.python.release_builders import MechanismMapping, ReleaseMapping
from dpolicy.releases.release_format import MECHANISM, RELEASE
from dpolicy.releases.release_parser import load_release, release_from_plain
from dpolicy.text.shapes import RecordShape

#: `data-dependent` may only be false, so no builder has it.
COMMON = COMMON_PARAMETERS - {"data-dependent"}

FILE = """\
release: page-views-2026-10-28
by: ana@example.org
utility: 3.2
mechanisms:
  - name: histogram
    mechanism: {kind: gaussian, sigma: 57.8, sensitivity: 10}
    unit: user-day
    relation: add-remove
    additive: true
    also: {user-month: {sensitivity: 70}}
    attributes: [page-views]
    labels: {dataset: web, deployment: standard}
    where: {country: [CH, DE], age: {from: 18, to: 64}}
    time: {from: 2026-10-28, to: 2026-10-28}
  - mechanism: {kind: dp-sgd, noise-multiplier: 1.1, sampling-rate: 0.0043, steps: 14000}
  - mechanism: {kind: declared, renyi: {2: 0.3, 8: 1.2}}
"""


def file_names(function: Any) -> set[str]:
    """Return the parameters of a builder under their names in a release file."""
    return {name.replace("_", "-") for name in inspect.signature(function).parameters}


def builder(kind: str) -> Any:
    return getattr(dpolicy, kind.replace("-", "_"))


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=lambda kind: kind.name)
def test_a_builder_has_the_parameters_of_its_kind(kind: Any) -> None:
    assert file_names(builder(kind.name)) == kind.parameters | COMMON
    example = {name.replace("-", "_"): value for name, value in kind.example.items()}
    built = builder(kind.name)(**example)
    assert built == {"kind": kind.name, **kind.example}
    mechanism, problems = parse_mechanism(to_plain_body(built))
    assert mechanism is not None and not problems


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=lambda kind: kind.name)
def test_a_parameter_without_default_is_required_by_the_kind(kind: Any) -> None:
    parameters = inspect.signature(builder(kind.name)).parameters.values()
    required = {p.name.replace("_", "-") for p in parameters if p.default is p.empty}
    assert required <= set(kind.example)
    for name in required:
        fields = {key: value for key, value in kind.example.items() if key != name}
        _, problems = parse_mechanism({"kind": kind.name, **fields})
        assert [problem.code for problem in problems] == ["M003"], name


def test_the_types_of_mappings_have_the_keys_of_the_format() -> None:
    assert isinstance(RELEASE, RecordShape) and isinstance(MECHANISM, RecordShape)
    assert set(get_type_hints(ReleaseMapping)) == set(RELEASE.fields)
    assert set(get_type_hints(MechanismMapping)) == set(MECHANISM.fields)
    assert set(get_args(KindName)) == set(MECHANISM_KINDS)
    parameters = set().union(*(kind.parameters for kind in MECHANISM_KINDS.values()))
    assert set(get_type_hints(ParameterMapping)) == parameters | COMMON | {"kind"}
    assert file_names(dpolicy.release) == set(RELEASE.fields)
    assert file_names(dpolicy.mechanism) == set(MECHANISM.fields)
    hint = get_type_hints(release_builders.mechanism)["relation"]
    literal = next(part for part in get_args(hint) if get_args(part))
    assert set(get_args(literal)) == set(NeighbouringRelation)


def test_every_kind_is_public() -> None:
    names = {name for name in dir(mechanism_builders) if not name.startswith("_")}
    kinds = {kind.replace("-", "_") for kind in MECHANISM_KINDS}
    assert kinds <= names and kinds <= set(dpolicy.__all__)


def test_built_and_written_releases_are_the_same(tmp_path: Path) -> None:
    built = dpolicy.release(
        "page-views-2026-10-28",
        [
            dpolicy.mechanism(
                dpolicy.gaussian(sigma=np.float64(57.8), sensitivity=10),
                name="histogram",
                unit="user-day",
                relation="add-remove",
                additive=True,
                also={"user-month": {"sensitivity": 70}},
                attributes=["page-views"],
                labels={"dataset": "web", "deployment": "standard"},
                where={"country": ["CH", "DE"], "age": {"from": 18, "to": 64}},
                time={"from": date(2026, 10, 28), "to": "2026-10-28"},
            ),
            dpolicy.mechanism(
                dpolicy.dp_sgd(noise_multiplier=1.1, sampling_rate=0.0043, steps=14_000)
            ),
            dpolicy.mechanism(dpolicy.declared(renyi={2: 0.3, 8: 1.2})),
        ],
        by="ana@example.org",
        utility=3.2,
    )
    file = tmp_path / "release.yaml"
    file.write_text(FILE, "utf-8")
    assert release_from_plain(built) == load_release(file)


def test_a_builder_keeps_a_false_or_empty_value() -> None:
    """Leaving it out would hide a mistake, or turn an empty selection into everything."""
    noise = dpolicy.gaussian(sigma=2)
    assert dpolicy.mechanism(noise, where=[])["where"] == []
    assert dpolicy.release("r", [], utility=0) == {"release": "r", "mechanisms": [], "utility": 0}
    with pytest.raises(dpolicy.MalformedRelease):
        release_from_plain(dpolicy.release("r", [dpolicy.mechanism(noise, where=[])]))
