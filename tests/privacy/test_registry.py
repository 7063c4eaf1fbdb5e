"""Registry of mechanism kinds: every declaration is complete, documented and usable."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from dpolicy.privacy.calibration import calibrate_noise
from dpolicy.privacy.certificates import PURE, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.mechanisms import gaussian, laplace, registry
from dpolicy.privacy.mechanisms.divergence_bounds import DivergenceBounds
from dpolicy.privacy.mechanisms.gaussian import Gaussian
from dpolicy.privacy.mechanisms.mechanism import COMMON_PARAMETERS, Mechanism, MechanismKind
from dpolicy.privacy.mechanisms.registry import (
    MECHANISM_KINDS,
    parse_mechanism,
    parse_restatements,
)
from dpolicy.privacy.units.privacy_units import NeighbouringRelation
from dpolicy.releases.edits import with_more_noise

DOCS = (Path(__file__).parents[2] / "docs" / "releases.md").read_text("utf-8")
CERTIFICATES = (PURE, RHO, renyi(2), renyi(8))


def documented_parameters(name: str) -> set[str]:
    """Return the parameters that the table of docs/releases.md lists for a kind."""
    rows = re.findall(r"^\| (`[^|]*) \| (.*) \|$", DOCS, re.MULTILINE)
    cells = [cell for kinds, cell in rows if f"`{name}`" in kinds]
    return {word for cell in cells for word in re.findall(r"`([a-z-]+)", cell)}


def example_fields(kind: MechanismKind) -> dict[str, object]:
    return {"kind": kind.name, **kind.example}


def losses(mechanism: Mechanism) -> list[int | None]:
    return list(cost(mechanism, 1, NeighbouringRelation.ADD_REMOVE, CERTIFICATES))


def declaration_problems(kind: MechanismKind) -> Iterator[str]:
    """Yield everything that is wrong with the declaration of a kind."""
    allowed = kind.parameters | COMMON_PARAMETERS
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.name):
        yield "name"
    if not kind.parameters or kind.parameters & COMMON_PARAMETERS:
        yield "parameters"
    if not kind.restatable <= allowed:
        yield "restatable"
    if not kind.noise_parameters.keys() <= kind.parameters or 0 in kind.noise_parameters.values():
        yield "noise parameters"
    if not kind.unscalable <= kind.parameters:
        yield "unscalable"
    if kind.calibrated is not None and kind.noise_parameters.get(kind.calibrated) != 1:
        yield "calibrated"
    if any(not {name, *options} <= kind.parameters for name, options in kind.variants.items()):
        yield "variants"
    if not kind.parameters <= documented_parameters(kind.name):
        yield "documentation"
    yield from behaviour_problems(kind)


def behaviour_problems(kind: MechanismKind) -> Iterator[str]:
    """Yield what is wrong with the mechanism that the kind builds from its example."""
    fields = example_fields(kind)
    if not kind.example.keys() <= kind.parameters | COMMON_PARAMETERS:
        yield "example"
    mechanism, _ = parse_mechanism(fields)
    if mechanism is None:
        yield "example"
        return
    required = (name for name in kind.example if parse_without(fields, name) is not None)
    if any(required):
        yield "example is not minimal"
    if all(amount is None for amount in losses(mechanism)):
        yield "curve"
    repeated, _ = parse_mechanism({**fields, "count": 3, "sampling-rate": Fraction(1, 2)})
    if repeated is None or (repeated.count, repeated.sampling_rate) != (3, Fraction(1, 2)):
        yield "count and rate"
    if repeated is not None and repeated.run_count != 3 * mechanism.run_count:
        yield "run count"


def parse_without(fields: dict[str, object], name: str) -> Mechanism | None:
    return parse_mechanism({key: value for key, value in fields.items() if key != name})[0]


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=MECHANISM_KINDS)
def test_every_declaration_is_complete(kind: MechanismKind) -> None:
    assert list(declaration_problems(kind)) == []


@dataclass(frozen=True, slots=True)
class Unbounded(Mechanism):
    """A mechanism without any bound, which ignores its count."""

    sigma: Fraction

    def bounds_without_sampling(self, k: int) -> DivergenceBounds:
        return DivergenceBounds()


GAUSSIAN = MECHANISM_KINDS["gaussian"]
INCOMPLETE: dict[str, MechanismKind] = {
    "name": replace(GAUSSIAN, name="Gaussian noise"),
    "parameters": replace(GAUSSIAN, parameters=GAUSSIAN.parameters | {"count"}),
    "restatable": replace(GAUSSIAN, restatable=frozenset({"sensitivty"})),
    "noise parameters": replace(GAUSSIAN, noise_parameters={"sigma": 1, "scale": 1}),
    "unscalable": replace(GAUSSIAN, unscalable=frozenset({"xi"})),
    "calibrated": replace(GAUSSIAN, calibrated="sensitivity"),
    "variants": replace(GAUSSIAN, variants={"sigma": frozenset({"delta"})}),
    "documentation": replace(GAUSSIAN, parameters=GAUSSIAN.parameters | {"tail"}),
    "example": replace(GAUSSIAN, example={"scale": 1}),
    "example is not minimal": replace(GAUSSIAN, example={"sigma": 10, "sensitivity": 1}),
    "count and rate": replace(
        GAUSSIAN, build=lambda reader, *_: Gaussian(reader.positive("sigma"))
    ),
    "curve": replace(GAUSSIAN, build=lambda reader, *_: Unbounded(reader.positive("sigma"))),
    "run count": replace(GAUSSIAN, build=lambda reader, *_: Unbounded(reader.positive("sigma"))),
}


@pytest.mark.parametrize("problem", INCOMPLETE)
def test_the_declaration_test_can_fail(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = INCOMPLETE[problem]
    monkeypatch.setattr(registry, "MECHANISM_KINDS", {**MECHANISM_KINDS, kind.name: kind})
    assert problem in list(declaration_problems(kind))


def test_a_kind_without_documentation_is_detected() -> None:
    assert documented_parameters("staircase") == set()
    assert documented_parameters("gaussian") == {"sigma", "sensitivity"}


def test_the_registry_collects_every_declared_kind_once() -> None:
    families = [module.KINDS for module in family_modules()]
    names = [kind.name for kinds in families for kind in kinds]
    assert sorted(names) == list(MECHANISM_KINDS)
    assert gaussian.KINDS in families and laplace.KINDS in families


def family_modules() -> Iterator[ModuleType]:
    """Yield the modules of `privacy/mechanisms` that declare kinds."""
    folder = Path(gaussian.__file__).parent
    for path in sorted(folder.glob("*.py")):
        module = sys.modules.get(f"dpolicy.privacy.mechanisms.{path.stem}")
        assert module is not None or path.stem == "__init__", f"{path.name} is not imported"
        if module is not None and hasattr(module, "KINDS"):
            yield module


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=MECHANISM_KINDS)
def test_more_noise_never_costs_more(kind: MechanismKind) -> None:
    body = {"mechanisms": [{"mechanism": example_fields(kind)}]}
    scaled = with_more_noise(body, Fraction(2))
    if not kind.noise_parameters:
        assert scaled is None
        return
    assert scaled is not None
    before, after = (
        parse_mechanism(one["mechanisms"][0]["mechanism"])[0] for one in (body, scaled)
    )
    assert before is not None and after is not None
    pairs = list(zip(losses(before), losses(after), strict=True))
    assert all(a is None or (b is not None and b < a) for a, b in pairs)


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=MECHANISM_KINDS)
def test_a_calibrated_kind_meets_its_target(kind: MechanismKind) -> None:
    if kind.calibrated is None:
        return
    fields = {name: value for name, value in kind.example.items() if name != kind.calibrated}
    noise, reached = calibrate_noise(kind.name, fields, Fraction(1), Fraction("1e-6"))
    assert noise > 0 and reached <= 1


@pytest.mark.parametrize("kind", MECHANISM_KINDS.values(), ids=MECHANISM_KINDS)
def test_only_restatable_parameters_can_be_restated(kind: MechanismKind) -> None:
    for name, value in kind.example.items():
        restated, problems = parse_restatements(example_fields(kind), {"user": {name: value}})
        assert [problem.code for problem in problems if problem.code == "M017"] == (
            [] if name in kind.restatable else ["M017"]
        )
        assert bool(restated) == (name in kind.restatable)


def test_the_registry_does_not_import_numpy() -> None:
    code = "import sys, dpolicy.privacy.mechanisms.registry; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
