"""Eight scenarios of the 2020 Census as scopes, with frequentist and Bayesian readings.

Run `python examples/census-2020/scenarios.py`. In every scenario the attacker knows the answers of
all people except one fact about one person. The scope of a scenario has the counts that depend on
this fact; the loss of all other counts does not concern it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from dpolicy import DecisionPoint, load_policy, load_release
from dpolicy.pdp.spending.spending import Spending
from dpolicy.privacy.number_text import format_share, format_up
from dpolicy.privacy.risk.attacker_risk import attacker_risk

FOLDER = Path(__file__).parent

#: δ of the ε that the Census Bureau published, and of the posteriors.
DELTA = Fraction("1e-10")

#: Unknown fact of each scenario, and the scope of the counts that depend on it.
SCENARIOS = {
    "all answers and the residence": "true",
    "all answers": "size(attributes) > 0",
    "race and Hispanic origin": '"cenrace" in attributes || "hispanic" in attributes',
    "race": '"cenrace" in attributes',
    "Hispanic origin": '"hispanic" in attributes',
    "of voting age or not": '"votingage" in attributes',
    "household or group quarters": '"hhgq" in attributes',
    "block within the block group": 'labels.geolevel == "block"',
}


def spending_by_scenario() -> dict[str, Spending]:
    """Return the spending of the release in every scenario, on a new in-memory ledger."""
    point = DecisionPoint(":memory:")
    point.apply(load_policy(FOLDER / "policy.yaml"))
    point.submit(load_release(FOLDER / "releases" / "redistricting.yaml"))
    return {
        fact: point.spent(when=scope, unit="person", delta=DELTA)
        for fact, scope in SCENARIOS.items()
    }


def print_table(title: str, header: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Print one line of numbers for each scenario."""
    print(f"{title:<31}" + "".join(f"{cell:>10}" for cell in header))
    for fact, cells in rows.items():
        print(f"{fact:<31}" + "".join(f"{cell:>10}" for cell in cells))


def frequentist_reading(spending: Spending) -> list[str]:
    """Return ρ, ε, and the true-positive rate at false-positive rates of 1 % and 5 %."""
    risk = attacker_risk(spending.cost, DELTA)
    rates = [format_share(risk.true_positive_rate(rate)) for rate in (0.01, 0.05)]
    return [format_up(spending.rho), format_up(spending.epsilon, 5), *rates]


def bayesian_reading(spending: Spending) -> list[str]:
    """Return the belief from priors of 1 %, 10 % and 50 %, in 99 % and in nearly all results."""
    risks = [attacker_risk(spending.cost, delta) for delta in (Fraction("0.01"), DELTA)]
    return [format_share(risk.posterior(prior)) for risk in risks for prior in (0.01, 0.1, 0.5)]


def main() -> None:
    """Print the frequentist and the Bayesian readings of all scenarios."""
    spent = spending_by_scenario()
    rows = {fact: frequentist_reading(spending) for fact, spending in spent.items()}
    print_table("true-positive rate, at most", ("ρ", "ε", "FPR 1 %", "FPR 5 %"), rows)
    print(f"\n{'':<31}{'in 99 % of results':>30}{'in all but 1e-10 of results':>30}")
    rows = {fact: bayesian_reading(spending) for fact, spending in spent.items()}
    print_table("belief, at most", ("from 1 %", "from 10 %", "from 50 %") * 2, rows)


if __name__ == "__main__":
    main()
