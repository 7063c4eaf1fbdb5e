"""Noise calibration by decisions: the printed noise is allowed, and less noise is denied."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pdp.builders import body, mechanism, started

from dpolicy import Denied, InvalidValue
from dpolicy.cli.main import exit_code
from dpolicy.errors import ReleaseRejected
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.calibration import search_noise
from dpolicy.releases.release_parser import parse_release
from dpolicy.text.diagnostics import DiagnosticCollector
from dpolicy.text.yaml_reader import Source

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, user-day: {period: day}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}}
  partitions: {country: {values: [AT, CH]}}
"""
RULES = (
    "  - {name: g, kind: custom, when: always, unit: user, budget: {epsilon: 3}}\n",
    "  - {name: a, kind: custom, when: always, unit: user, profile: anchored,"
    " budget: {epsilon: 2}}\n",
    "  - {name: r, kind: custom, when: always, unit: user, budget: {rho: 0.4}}\n",
    "  - {name: o, kind: custom, when: always, unit: user, budget: {renyi: {2: 0.5, 8: 2}}}\n",
    "  - {name: d, kind: custom, when: always, unit: user-day, budget: {epsilon: 1}}\n",
)
KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "gaussian"},
    {"kind": "gaussian", "sensitivity": Fraction(10)},
    {"kind": "discrete-gaussian"},
    {"kind": "laplace", "sensitivity": Fraction(1, 2)},
    {"kind": "dp-sgd", "sampling-rate": Fraction(1, 100), "steps": Fraction(100)},
    {"kind": "tree-aggregation", "steps": Fraction(64)},
)


def as_text(name: str, fields: dict[str, Any], parameter: str, noise: float) -> str:
    """Return the release file that a person writes with a printed noise."""
    values = {key: value if key == "kind" else float(value) for key, value in fields.items()}
    stated = json.dumps({**values, parameter: noise})
    return (
        f"release: {name}\nmechanisms: [{{mechanism: {stated}, unit: user, attributes: [zip]}}]\n"
    )


def check_text(point: DecisionPoint, text: str) -> bool:
    diagnostics = DiagnosticCollector()
    release = parse_release(Source("release.yaml", text), diagnostics)
    assert release is not None and not diagnostics.errors
    return point.check(release).allowed


def is_full_for(point: DecisionPoint, fields: dict[str, Any]) -> bool:
    """Return whether no noise of a discrete Gaussian is allowed: it has no cost in μ²."""
    noises = [10.0**power for power in range(-3, 9)]
    return fields["kind"] == "discrete-gaussian" and not any(
        check_text(point, as_text("new", fields, "sigma", noise)) for noise in noises
    )


def test_a_budget_that_gaussians_fill_to_the_last_reserve_admits_no_discrete_gaussian() -> None:
    """Only μ² still has room for them, and a discrete Gaussian has no cost in μ²."""
    point = started(RULES[4], head=HEAD)
    filling = mechanism(("zip",), kind="gaussian", sigma=9.9) | {"unit": "user"}
    assert point.submit(body("past", filling)).allowed
    assert is_full_for(point, {"kind": "discrete-gaussian"})
    with pytest.raises(Denied):
        point.calibrate({"mechanism": {"kind": "discrete-gaussian"}, "unit": "user"})
    assert point.calibrate({"mechanism": {"kind": "gaussian"}, "unit": "user"}).value < 100


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True),
    st.sampled_from(KINDS),
    st.lists(st.integers(30, 300), max_size=3),
)
def test_the_noise_is_the_least_that_is_allowed(
    rules: list[str], fields: dict[str, Any], past: list[int]
) -> None:
    point = started(*rules, head=HEAD)
    for number, tenths in enumerate(past):
        spent = mechanism(("zip",), kind="gaussian", sigma=tenths / 10) | {"unit": "user"}
        point.submit(body(f"past-{number}", spent))
    stated = {"mechanism": fields, "unit": "user", "attributes": ["zip"]}
    if is_full_for(point, fields):
        with pytest.raises(Denied):
            point.calibrate(stated)
        return
    noise = point.calibrate(stated)
    assert check_text(point, as_text("new", fields, noise.parameter, noise.value))
    assert noise.binding and noise.decision.allowed
    assert not check_text(point, as_text("new", fields, noise.parameter, noise.value * 0.999))
    assert point.submit({**noise.release.body, "release": "new"}).allowed


def test_the_binding_rule_is_named() -> None:
    cap = "  - {name: cap, kind: custom, when: always, unit: user, budget: {epsilon: 0.5}}\n"
    point = started(RULES[0], head=HEAD, each=cap)
    fields = {"mechanism": {"kind": "gaussian"}, "unit": "user"}
    noise = point.calibrate(fields)
    assert [reason.rule for reason in noise.binding] == ["cap"]
    assert repr(noise) == f"CalibratedNoise(sigma={noise.value}, binding=['cap'])"
    for number in range(60):
        small = mechanism(kind="gaussian", sigma=12) | {"unit": "user"}
        point.submit(body(f"small-{number}", small))
    assert [reason.rule for reason in point.calibrate(fields).binding] == ["g"]


def test_a_full_budget_stops_the_search() -> None:
    point = started(RULES[2], head=HEAD)
    point.submit(body("all", mechanism(rho="0.4") | {"unit": "user"}))
    with pytest.raises(Denied, match="exceeded: r"):
        point.calibrate({"mechanism": {"kind": "gaussian"}, "unit": "user"})


def test_a_mechanism_without_noise_has_none_to_calibrate() -> None:
    point = started(RULES[0], head=HEAD)
    with pytest.raises(InvalidValue, match="no noise to calibrate"):
        point.calibrate({"mechanism": {"kind": "declared", "epsilon": 1}, "unit": "user"})
    with pytest.raises(ReleaseRejected, match="R002"):
        point.calibrate({"mechanism": {"kind": "gaussian"}, "unit": "user", "attributes": ["x"]})


def test_an_unlimited_budget_admits_the_least_noise_of_the_search() -> None:
    rule = "  - {name: all, kind: custom, when: always, unit: user, budget: unlimited}\n"
    noise = started(rule, head=HEAD).calibrate({"mechanism": {"kind": "gaussian"}, "unit": "user"})
    assert noise.value == 1e-6 and noise.binding == ()


@given(st.fractions(min_value=0, max_value=10**9))
def test_the_search_is_exact_to_twelve_digits(least: Fraction) -> None:
    interval = search_noise(lambda noise: noise >= least)
    assert interval is not None
    assert least <= interval.enough
    if interval.too_little is not None:
        assert interval.too_little < least
        assert interval.enough <= interval.too_little * (1 + Fraction(1, 10**11))
    else:
        assert interval.enough == Fraction(1, 10**6)


def test_the_search_stops_at_the_largest_noise() -> None:
    assert search_noise(lambda noise: False) is None


POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 3}}
"""


class Commands:
    """Commands in a directory with a policy and a ledger."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def run(self, line: str, code: int = 0) -> tuple[str, str]:
        """Run a command; return its output and its notes."""
        assert exit_code(line.split()) == code
        captured = self.capsys.readouterr()
        return captured.out, captured.err

    def submit(self, name: str, sigma: float, code: int) -> None:
        """Submit a release of Gaussian noise."""
        text = f"release: {name}\nmechanisms: [{{mechanism: {{kind: gaussian, sigma: {sigma}}}}}]\n"
        Path("new.yaml").write_text(text, "utf-8")
        self.run("submit new.yaml --ledger ledger.db", code)


@pytest.fixture
def commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPOLICY_LEDGER", raising=False)
    Path("policy.yaml").write_text(POLICY, "utf-8")
    commands = Commands(capsys)
    commands.run("apply policy.yaml --ledger ledger.db")
    return commands


def test_the_printed_sigma_is_allowed_until_the_budget_is_full(commands: Commands) -> None:
    line = "calibrate --kind gaussian --ledger ledger.db --format json"
    commands.submit("first", 4, code=0)
    answer = json.loads(commands.run(line)[0])
    assert answer["kind"] == "gaussian" and answer["delta"] == 1e-7
    assert [entry["rule"] for entry in answer["binding"]] == ["global"]
    commands.submit("less", answer["sigma"] * 0.999, code=2)
    commands.submit("second", answer["sigma"], code=0)
    past = "release: past\nmechanisms: [{mechanism: {kind: declared, epsilon: 3}}]\n"
    Path("past.yaml").write_text(past, "utf-8")
    commands.run("import past.yaml --ledger ledger.db")
    out, err = commands.run("calibrate --kind gaussian --ledger ledger.db", code=2)
    assert "global" in out and "no noise of `gaussian` is allowed" in err
    assert json.loads(commands.run(line, code=2)[0])["sigma"] is None


def test_a_target_with_a_policy_is_what_its_filter_admits(commands: Commands) -> None:
    alone = json.loads(
        commands.run("calibrate --kind gaussian --epsilon 3 --delta 1e-7 --format json")[0]
    )
    target = "calibrate --kind gaussian --epsilon {} --policy policy.yaml --format json"
    filtered = json.loads(commands.run(target.format(3))[0])
    commands.submit("alone", alone["sigma"], code=2)
    commands.submit("less", filtered["sigma"] * 0.999, code=2)
    commands.submit("filtered", filtered["sigma"], code=0)
    smaller = json.loads(commands.run(target.format(0.5))[0])
    assert smaller["sigma"] > filtered["sigma"] and smaller["binding"] == []
    larger = json.loads(commands.run(target.format(30))[0])
    assert larger["sigma"] == filtered["sigma"]


def test_the_exact_epsilon_is_that_of_the_protected_unit(commands: Commands) -> None:
    text = POLICY.replace("accounting: {", "accounting: {relation: change, ")
    assert text != POLICY
    Path("change.yaml").write_text(text, "utf-8")
    line = "calibrate --kind gaussian --relation add-remove --policy change.yaml --format json"
    answer = json.loads(commands.run(line)[0])
    release = (
        "release: r\nmechanisms:\n"
        f"  - {{mechanism: {{kind: gaussian, sigma: {answer['sigma']}}}, relation: add-remove}}\n"
    )
    Path("r.yaml").write_text(release, "utf-8")
    cost = json.loads(commands.run("cost r.yaml --policy change.yaml --format json")[0])
    assert answer["epsilon"] == cost["mechanisms"][0]["units"]["user"]["epsilon"]


def test_an_infinite_loss_fills_the_bar(commands: Commands) -> None:
    past = "release: past\nmechanisms: [{mechanism: {kind: declared, renyi: {1.5: 1}}}]\n"
    Path("past.yaml").write_text(past, "utf-8")
    commands.run("import past.yaml --ledger ledger.db")
    out, _ = commands.run("budgets --ledger ledger.db")
    bar, share, *_ = out.split()
    assert set(bar) == {"█"} and share == "∞" and "exceeded" in out


def test_the_texts_name_what_binds_and_what_the_number_is(commands: Commands) -> None:
    out, err = commands.run("calibrate --kind gaussian --ledger ledger.db")
    assert out.startswith("sigma: 1.762")
    assert "the least noise that `submit` allows now" in err
    assert "binding  global  unit user  0 → 3 of ε 3 (alone 3, by the rule's filter)" in err
    _, err = commands.run("calibrate --kind gaussian --epsilon 0.5 --policy policy.yaml")
    assert "on an empty ledger" in err and "binding  --epsilon" in err
    _, err = commands.run("calibrate --kind gaussian --epsilon 3 --delta 1e-7")
    assert "ε 3 exact at δ 1e-07, for one release alone" in err
    assert "help: pass --ledger" in err


def test_the_environment_names_the_ledger(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.run("calibrate --kind gaussian", code=64)
    monkeypatch.setenv("DPOLICY_LEDGER", "ledger.db")
    with_ledger = commands.run("calibrate --kind gaussian --ledger ledger.db")
    assert commands.run("calibrate --kind gaussian") == with_ledger


DEMANDING = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}, person-day: {period: day, of: user}}
schema:
  attributes: {zip: {risk: low}}
  labels: {team: {values: [ads, maps], required: true}}
  partitions: {country: {values: [AT, CH]}, age: {from: 0, to: 119}}
policies:
  - {name: zips, kind: attribute, units: [user, person-day], budgets: {low: {epsilon: 1}}}
"""


def test_a_missing_option_is_named(commands: Commands) -> None:
    Path("demanding.yaml").write_text(DEMANDING, "utf-8")
    line = "calibrate --kind gaussian --policy demanding.yaml --unit user"
    assert "--label NAME=VALUE" in commands.run(line, code=3)[1]
    line += " --label team=ads"
    assert "help: pass --attributes" in commands.run(line, code=2)[1]
    assert "did you mean `zip`?" in commands.run(f"{line} --attributes zpi", code=3)[1]
    line += " --attributes zip"
    sigma, _ = commands.run(line)
    assert sigma.startswith("sigma: ")
    region = "--where country=CH,AT --where age=18..64 --time 2026-10-01..2026-10-31"
    assert commands.run(f"{line} {region}")[0] == sigma
    assert "2026-13" in commands.run(f"{line} --time 2026-13-01", code=3)[1]
    commands.run(f"{line} --where age=x..y", code=64)
    commands.run(f"{line} --where age", code=64)
    assert "--where" in commands.run(f"{line} --where country=FR", code=3)[1]
    assert "--unit" in commands.run(line.replace("--unit user", "--unit us"), code=3)[1]
