"""Filter as the cause of a denial under a rule with reserves, which split δ with the orders."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.pdp.builders import GLOBAL, body, noise, started

from dpolicy.privacy.conversion import gaussian_to_epsilon
from dpolicy.releases.decision import Decision


def check_gaussian(sigma: str, profile: str) -> Decision:
    policy = GLOBAL.replace("}}", f"}}, profile: {profile}}}")
    mechanism = {"mechanism": noise(kind="gaussian", sigma=sigma), "unit": "user"}
    return started(policy).check(body("r", mechanism))


@pytest.mark.parametrize("profile", ["anchored", "gaussian"])
def test_the_best_certificate_of_a_gaussian_is_its_variance(profile: str) -> None:
    """No order certifies this Gaussian within the budget; μ² with all of δ does."""
    sigma = {"anchored": "2.5", "gaussian": "2.46"}[profile]
    (reason,) = check_gaussian(sigma, profile).reasons
    exact = gaussian_to_epsilon(1 / float(sigma), Fraction("1e-7"))
    assert exact < 2 and not reason.holds
    stated = float(reason.cause.rpartition("ε ")[2])
    assert reason.cause.startswith("filter: ")
    assert exact <= stated == pytest.approx(exact, rel=1e-5)


def test_the_filter_is_no_cause_beyond_the_exact_loss() -> None:
    (reason,) = check_gaussian("2.3", "anchored").reasons
    assert not reason.holds and reason.cause == ""
