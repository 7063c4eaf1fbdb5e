"""Numbers that commands print: losses and shares are rounded up, and budgets are not."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dpolicy.cli.main import exit_code

MECHANISMS = (
    "{kind: declared, epsilon: 1.0986122886681098}",
    "{kind: declared, epsilon: 0.3333333333}",
    "{kind: declared, rho: 0.1234567}",
    "{kind: gaussian, sigma: %s}",
    "{kind: laplace, scale: %s}",
    "{kind: dp-sgd, noise-multiplier: %s, sampling-rate: 0.01, steps: 100}",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command in a new directory and returns its output."""
    monkeypatch.chdir(tmp_path)

    def run_command(line: str) -> str:
        assert exit_code(line.split()) == 0
        return capsys.readouterr().out

    return run_command


def write_release(name: str, *mechanisms: str) -> str:
    """Write a release file; return its name."""
    entries = "".join(f"  - {{unit: user, mechanism: {text}}}\n" for text in mechanisms)
    Path(f"{name}.yaml").write_text(f"release: {name}\nmechanisms:\n{entries}", "utf-8")
    return f"{name}.yaml"


def test_no_printed_cost_is_below_the_exact_one(run: Any) -> None:
    random = Random(5)
    for _ in range(10):
        texts = [m % f"{random.uniform(0.7, 9):.6f}" if "%" in m else m for m in MECHANISMS]
        file = write_release("release", *texts)
        exact = json.loads(run(f"cost {file} --format json"))["mechanisms"]
        *lines, total = [line for line in run(f"cost {file}").splitlines() if line[:2] == "  "]
        assert total == "  user  ε – exact (loss distribution)", "a stated ρ has no distribution"
        assert len(lines) == len(exact)
        for line, mechanism in zip(lines, exact, strict=True):
            unit = mechanism["units"]["user"]
            printed = dict(re.findall(r"(ε|pure|ρ|μ) ([^ ]+)", line))
            for name, key in (("ε", "epsilon"), ("pure", "pure"), ("ρ", "rho"), ("μ", "mu")):
                if unit[key] is None:
                    assert printed[name] == "–"
                else:
                    assert Fraction(printed[name]) >= Fraction(repr(unit[key]))


def test_the_exact_cost_of_a_release_is_printed_with_its_method(run: Any) -> None:
    training = "{kind: dp-sgd, noise-multiplier: 1, sampling-rate: 0.001, steps: 10000}"
    file = write_release("release", training, "{kind: laplace, scale: 10, count: 20}")
    report = json.loads(run(f"cost {file} --delta 1e-5 --format json"))
    first = report["mechanisms"][0]["units"]["user"]
    assert first["epsilon"] == first["exact-epsilon"] == pytest.approx(0.4758, rel=1e-3)
    text = run(f"cost {file} --delta 1e-5")
    assert f"ε {first['epsilon']} exact (loss distribution)" in text
    assert f"  user  ε {report['exact-epsilon']['user']} exact (loss distribution)" in text
    assert first["epsilon"] < report["exact-epsilon"]["user"] < 2.476


def test_the_cost_of_a_randomised_answer_is_at_least_log_3(run: Any) -> None:
    text = run(f"cost {write_release('release', *MECHANISMS[:2])}")
    assert "pure 1.09862 " in text and "pure 0.333334 " in text
    assert "none" not in text


POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
policies:
  - name: nearly
    kind: custom
    when: 'by != "bob"'
    unit: user
    budget: {epsilon: 1.0000049, delta: 0}
  - name: full
    kind: custom
    when: 'mechanism == "declared"'
    unit: user
    budget: {epsilon: 0.997, delta: 0}
  - {name: orders, kind: custom, when: always, unit: user, budget: {renyi: {2: 2, 8: 1.5}}}
"""


def test_budgets_are_exact_and_only_a_full_one_is_used_to_100_percent(run: Any) -> None:
    Path("policy.yaml").write_text(POLICY, "utf-8")
    run("apply policy.yaml --ledger ledger.db")
    run(f"submit {write_release('release', '{kind: declared, epsilon: 0.997}')} --ledger ledger.db")
    full, nearly, orders = run("budgets --ledger ledger.db").splitlines()
    assert re.search(r"█{20} +100 %  full +user  0.997 of ε 0.997$", full)
    assert re.search(r"█{19}░ +99.7 %  nearly +user  0.997 of ε 1.0000049$", nearly)
    assert re.search(r"% +orders +user  [0-9.]+, [0-9.]+ of rényi\(2\) 2  rényi\(8\) 1.5$", orders)
    statuses = json.loads(run("budgets --ledger ledger.db --format json"))["budgets"]
    spent = next(s["spent"] for s in statuses if s["rule"] == "orders")
    printed = re.findall(r"([0-9.]+), ([0-9.]+) of", orders)[0]
    assert all(
        Fraction(p) >= Fraction(repr(v)) for p, v in zip(printed, spent.values(), strict=True)
    )
    percent = Fraction(re.findall(r" (\d+) %", orders)[0])
    assert percent >= 100 * max(
        Fraction(spent["renyi 2"]) / 2, Fraction(spent["renyi 8"]) / Fraction("1.5")
    )
