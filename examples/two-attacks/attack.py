"""A membership attack on two models about the same patients, without and with a cumulative budget.

Run `python examples/two-attacks/attack.py`. The attack is LiRA (Carlini et al., IEEE S&P 2022) for
each model: the attacker trains shadow models with and without the target, fits a normal
distribution to the target's score under each of the two, and computes the likelihood ratio of the
score under the released model. The target is a patient of both models or of neither, so the
attacker multiplies the two ratios. The noise comes from NumPy with a fixed seed: it illustrates the
attack and protects no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpolicy import DecisionPoint, load_policy, load_release
from dpolicy.privacy.risk.attacker_risk import AttackerRisk, risk_of_budget

FOLDER = Path(__file__).parent
RELEASES = [FOLDER / "releases" / f"{name}-model.yaml" for name in ("readmission", "costs")]
POLICY = FOLDER / "policy.yaml"
PER_RELEASE_POLICY = FOLDER / "mistakes" / "per-release.yaml"

PATIENTS, FEATURES = 100, 20
SHADOW_MODELS, TRIALS = 5_000, 100_000
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Booleans = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Interval(NamedTuple):
    """A measured rate with its 95 % Clopper-Pearson interval."""

    low: float
    rate: float
    high: float


class Attack(NamedTuple):
    """For every trial: whether the target is a member, and the log-likelihood ratio by model."""

    is_member: Booleans
    ratios: Floats

    @property
    def success(self) -> Interval:
        """How often the attacker is right who combines all models, from a prior of 50 %."""
        return measure_rate((self.ratios.sum(axis=1) > 0) == self.is_member)

    def select_agreeing(self, low: float, high: float) -> Attack:
        """Return the trials in which all models suggest the same answer with such a belief."""
        beliefs = to_belief(np.abs(self.ratios))
        agree = (self.ratios > 0).all(axis=1) | (self.ratios <= 0).all(axis=1)
        chosen = agree & ((beliefs >= low) & (beliefs <= high)).all(axis=1)
        return Attack(self.is_member[chosen], self.ratios[chosen])

    @property
    def belief(self) -> float:
        """Average belief in the answer that the attacker gives, from a prior of 50 %."""
        return float(to_belief(np.abs(self.ratios.sum(axis=1))).mean())


def to_belief(log_ratio: Floats) -> Floats:
    """Return the belief from a prior of 50 % after an observation with this likelihood ratio."""
    return np.asarray(1 / (1 + np.exp(-log_ratio)))


def allowed_noise(policy: Path) -> list[float]:
    """Return the allowed σ of each model; a denied model takes the first counter-offer."""
    point = DecisionPoint(":memory:")
    point.apply(load_policy(policy))
    noise = []
    for file in RELEASES:
        release = load_release(file)
        body = release.body if point.submit(release) else point.submit_offer(release, 1).body
        noise.append(float(body["mechanisms"][0]["mechanism"]["sigma"]))
    return noise


def attack(noise: Sequence[float], seed: int = 1) -> Attack:
    """Attack one model per σ in every trial; the target is a member of all of them or of none."""
    random = np.random.default_rng(seed)
    is_member = random.random(TRIALS) < 0.5
    ratios = [_attack_model(sigma, is_member, random) for sigma in noise]
    return Attack(is_member, np.column_stack(ratios))


def _attack_model(sigma: float, is_member: Booleans, random: np.random.Generator) -> Floats:
    """Return the log-likelihood ratio of membership for every released model."""
    patients, target = _patients(random)
    scores = _train(patients, target, is_member, sigma, random) @ target
    inside, outside = (
        _train(patients, target, np.full(SHADOW_MODELS, member), sigma, random) @ target
        for member in (True, False)
    )
    return _log_density(scores, inside) - _log_density(scores, outside)


def _patients(random: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the records of all other patients and of the target, each of norm 1.

    The target has a feature that is rare among the others.
    """
    others = random.normal(size=(PATIENTS, FEATURES))
    others[:, 0] *= 0.01
    return others / np.linalg.norm(others, axis=1, keepdims=True), np.eye(FEATURES)[0]


def _train(
    patients: Floats,
    target: Floats,
    has_target: Booleans,
    sigma: float,
    random: np.random.Generator,
) -> Floats:
    """Return the weights of one linear model per row: a noisy sum of the records of its patients.

    Every model has a random half of the other patients. One record changes the sum by 1 in L2 norm.
    """
    chosen = random.random((len(has_target), len(patients))) < 0.5
    sums = chosen @ patients + np.outer(has_target, target)
    return np.asarray(sums + random.normal(0, sigma, sums.shape))


def _log_density(scores: Floats, shadow_scores: Floats) -> Floats:
    """Return the log-density of the normal distribution that fits the shadow scores."""
    mean, deviation = shadow_scores.mean(), shadow_scores.std()
    return np.asarray(-(((scores - mean) / deviation) ** 2) / 2 - math.log(deviation))


def measure_rate(successes: Booleans) -> Interval:
    """Return the share of successes with its 95 % Clopper-Pearson interval."""
    count, total = int(successes.sum()), len(successes)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])
    choices = logs[total] - logs - logs[::-1]

    def at_least(successes: int, rate: float) -> float:
        """Return the probability of at least so many successes."""
        numbers = np.arange(successes, total + 1)
        terms = choices[numbers] + numbers * math.log(rate) + (total - numbers) * math.log1p(-rate)
        return float(np.exp(terms).sum())

    low = _bisect(lambda rate: at_least(count, rate) > 0.025) if count else 0.0
    high = _bisect(lambda rate: at_least(count + 1, rate) > 0.975) if count < total else 1.0
    return Interval(low, count / total, high)


def _bisect(is_above: Callable[[float], bool]) -> float:
    """Return the rate between 0 and 1 at which a monotone predicate becomes true."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


def permitted_risk(section: str) -> AttackerRisk:
    """Return the risk that the budget of the only rule of a section permits."""
    (rule,) = getattr(load_policy(POLICY), section).rules
    return risk_of_budget(rule.budget)


def row(title: str, noise: Sequence[float], limit: float | None) -> str:
    """Return a line with σ of each model, the measured success of the attacker and its bound."""
    low, rate, high = attack(noise).success
    sigmas = ", ".join(f"{sigma:g}" for sigma in noise)
    measured = f"{rate:>7.1%}   {low:.1%} to {high:.1%}"
    return f"{title:<31}{sigmas:<16}{measured}{format_bound(limit):>9}"


def format_bound(limit: float | None) -> str:
    """Return a bound in per cent, rounded up."""
    return "none" if limit is None else f"{math.ceil(limit * 1000) / 10:.1f}%"


def main() -> None:
    """Print the success of the attacker against one model, both models, and both with a policy."""
    unlimited, limited = allowed_noise(PER_RELEASE_POLICY), allowed_noise(POLICY)
    single, total = (permitted_risk(s).guess(0.5) for s in ("each_release", "cumulative"))
    print(f"{'':<31}{'σ':<16}{'success':>7}   95 % interval{'bound':>9}")
    print(row("one model", unlimited[:1], single))
    print(row("both, a limit for each only", unlimited, None))
    print(row("both, a limit for all", limited, total))
    print(row("both, half the declared noise", [sigma / 2 for sigma in limited], total))
    agreeing = attack(unlimited).select_agreeing(0.7, 0.8)
    share, rate = len(agreeing.is_member) / TRIALS, agreeing.success.rate
    print(f"\nIn {share:.1%} of the trials each attack believes the same answer, 70 to 80 %.")
    print(f"Together they believe it {agreeing.belief:.0%}, and it is true in {rate:.0%}.")


if __name__ == "__main__":
    main()
