"""Displayed losses: on the side of the budget on which the decision is, and infinite shares."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpolicy.balances.loss_display import certificates_for_display, loss_formatter
from dpolicy.privacy.budget import EpsilonDelta, Zcdp
from dpolicy.privacy.certificates import PURE, RHO, Certificate, Notion
from dpolicy.privacy.loss import INFINITE
from dpolicy.privacy.privacy_filter import build_bound_arrays
from dpolicy.privacy.thresholds import DEFAULT_ORDERS, Profile, bound_for_budget


@pytest.mark.parametrize("profile", list(Profile))
@given(
    epsilon=st.fractions(Fraction(1, 1000), 3, max_denominator=1000),
    delta=st.sampled_from(["1e-7", "0.01", "0.3", "0.9"]),
    rho=st.fractions(0, 2, max_denominator=10**6),
)
def test_a_displayed_epsilon_is_within_the_budget_exactly_if_the_rule_holds(
    profile: Profile, epsilon: Fraction, delta: str, rho: Fraction
) -> None:
    budget = EpsilonDelta(epsilon, Fraction(delta))
    bound = bound_for_budget(budget, profile, DEFAULT_ORDERS)
    shown = set(certificates_for_display(budget, profile, DEFAULT_ORDERS))
    offered = {certificate for clause in bound.clauses for certificate, _ in clause}
    certificates = tuple(sorted(shown | offered))
    amounts = [_amount(c, rho) for c in certificates]
    row = np.array([*amounts, 0])
    displayed = loss_formatter(budget, profile, DEFAULT_ORDERS, certificates)(row)["epsilon"]
    assert displayed is not None and displayed >= 0
    holds = build_bound_arrays([bound], certificates).are_within(row[np.newaxis])[0]
    assert (Fraction(repr(displayed)) <= epsilon) == holds


def _amount(certificate: Certificate, rho: Fraction) -> int:
    """Return the amount of Gaussian noise: ρα for an order, and 2ρ beside every reserve."""
    if certificate == PURE:
        return INFINITE if rho else 0
    factor = certificate.order if certificate.notion is Notion.RENYI else 2
    return math.ceil(rho * factor * 10**12)


def test_an_infinite_loss_uses_an_infinite_share() -> None:
    certificates = (PURE, RHO)
    formatter = loss_formatter(Zcdp(Fraction(1)), Profile.CLASSIC, DEFAULT_ORDERS, certificates)
    assert formatter.loss_shares(np.array([[INFINITE, INFINITE, 0]])).tolist() == [math.inf]
