"""Risk of registry entries: sound for the stated loss, and absent where an entry states none."""

from __future__ import annotations

import json
from fractions import Fraction
from math import exp
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.cli.main import exit_code
from dpolicy.integrations.registry.entry_risk import EntryRisk, read_entry_risk
from dpolicy.privacy.budget import EpsilonDelta, Gdp, Zcdp

DATA = Path(__file__).parent.parent / "data" / "registry"


def entry(parameters: dict[str, Any], variant: str = "", **changes: Any) -> dict[str, Any]:
    """Return an entry of the current layout that covers one release."""
    deployment = {
        "basic": {"name": "Commute times"},
        "dp_variant": {"variant_name": variant},
        "privacy_loss": {"privacy_unit": "User-level", "privacy_parameters": parameters},
        "deployment_model": {"model_name": "Central", "release_type": "One release"},
    }
    return {"deployment": {**deployment, **changes}}


def read_file(name: str) -> EntryRisk:
    return read_entry_risk(yaml.safe_load((DATA / name).read_text("utf-8")))


def test_the_statements_of_two_public_entries_are_read() -> None:
    census, wikimedia = read_file("census.yaml"), read_file("wikimedia.yaml")
    assert (census.unit, census.model) == ("Person-level; housing-unit-level", "Central")
    assert (census.loss, census.is_single_release) == (Zcdp(Fraction("2.63")), True)
    assert (wikimedia.unit, wikimedia.model) == ("Device-day-level", "Central")
    assert (wikimedia.loss, wikimedia.is_single_release) == (Zcdp(Fraction("0.015")), False)
    assert census.risk is not None and wikimedia.risk is not None
    assert census.problems == wikimedia.problems == ()


@given(st.decimals("0.01", "20", places=2))
def test_the_risk_of_a_pure_loss_is_that_of_randomized_response(epsilon: Any) -> None:
    risk = read_entry_risk(entry({"epsilon": float(epsilon)}, "Pure DP")).risk
    success = exp(float(epsilon)) / (1 + exp(float(epsilon)))
    assert risk is not None
    assert risk.guess(0.5) == pytest.approx(success, rel=1e-9)
    assert risk.posterior(0.5) >= success * (1 - 1e-12)


@given(st.decimals("0.01", "6", places=2))
def test_no_risk_is_below_an_attacker_of_gaussian_noise(number: Any) -> None:
    mu, normal = float(number), NormalDist()
    stated = ({"mu": mu}, "Gaussian DP"), ({"rho": mu * mu / 2}, "Zero-concentrated DP")
    for parameters, variant in stated:
        risk = read_entry_risk(entry(parameters, variant)).risk
        assert risk is not None
        assert risk.guess(0.5) >= normal.cdf(mu / 2) * (1 - 1e-12)
        assert risk.true_positive_rate(0.01) >= normal.cdf(normal.inv_cdf(0.01) + mu) * (1 - 1e-9)


def test_a_stated_delta_counts() -> None:
    stated = read_entry_risk(entry({"epsilon": 1, "delta": "1e-2"}, "Approximate DP"))
    pure = read_entry_risk(entry({"epsilon": 1}, "Pure DP"))
    assert stated.loss == EpsilonDelta(Fraction(1), Fraction("0.01"))
    assert stated.risk is not None and pure.risk is not None
    assert stated.risk.guess(0.5) >= pure.risk.guess(0.5) + 0.002


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (entry({"epsilon": 1}, privacy_loss={"privacy_parameters": {"epsilon": 1}}), "no unit"),
        (entry({"epsilon": 1}, privacy_loss={"privacy_unit": "User"}), "parameters is missing"),
        (entry({}), "no parameters"),
        (entry({"epsilon": "n^{-2}"}, "Pure DP"), "expected a number"),
        (entry({"epsilon": 1}, "Approximate DP"), "state no supported loss"),
        (entry({"rho": 1, "delta": 1e-6}, "Zero-concentrated DP"), "state no supported loss"),
        (entry({"epsilon": 1, "delta": 1}, "Approximate DP"), "delta"),
        (entry({"epsilon": 1}, "Some new DP"), "state no supported loss"),
    ],
)
def test_an_entry_without_a_usable_statement_has_no_bound(
    changed: dict[str, Any], reason: str
) -> None:
    risk = read_entry_risk(changed)
    assert risk.risk is None and risk.as_json()["risk"] is None
    assert any(reason in problem for problem in risk.problems)


@pytest.mark.parametrize("model", [{}, {"release_type": "Many releases"}, {"release_type": None}])
def test_an_entry_covers_each_release_unless_it_states_one(model: dict[str, Any]) -> None:
    risk = read_entry_risk(entry({"mu": 1}, "Gaussian DP", deployment_model=model))
    assert risk.loss == Gdp(Fraction(1))
    assert risk.as_json()["covers"] == "each release"


def test_the_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(DATA / "census.yaml"), str(DATA / "wikimedia.yaml")]
    assert exit_code(["registry", *files]) == 0
    _, census, wikimedia = capsys.readouterr().out.splitlines()
    assert "one release   ρ 2.63" in census and "Device-day-level" in wikimedia
    assert exit_code(["registry", *files, "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [e["loss"] for e in entries] == [{"rho": 2.63}, {"rho": 0.015}]
    assert entries[1]["covers"] == "each release" and entries[1]["risk"]["tpr"]["0.01"] < 0.03


@pytest.mark.parametrize("text", ["", "# nothing\n", "a: 1\n", "[1]\n", "deployment: [\n"])
def test_a_file_without_entries_is_rejected(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "entries.yaml"
    file.write_text(text, "utf-8")
    assert exit_code(["registry", str(file)]) == 3
    assert "error" in capsys.readouterr().err
