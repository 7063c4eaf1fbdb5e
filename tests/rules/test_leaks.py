"""The share of δ for stated leaks: masses stay within δ, and texts keep their meaning."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from tests.reference import rules as twin
from tests.reference.divergences import gaussian_delta, real

from dpolicy.errors import PolicyRejected
from dpolicy.policy.accounting.accounting_defaults import (
    FIRST_DEFAULTS,
    NEWEST_DEFAULTS,
    AccountingDefaults,
)
from dpolicy.privacy.budget import EpsilonDelta
from dpolicy.privacy.certificates import PURE, QUANTA_PER_UNIT, Notion
from dpolicy.privacy.reserves.ladder import LEAK_RATE, reserve_quanta
from dpolicy.privacy.shares.anchored_shares import anchored_shares
from dpolicy.privacy.shares.chains import DeltaShares
from dpolicy.privacy.thresholds import (
    DEFAULT_ORDERS,
    BudgetBound,
    Profile,
    bound_for_budget,
    weight_sum,
)
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.diagnostics import Diagnostic
from dpolicy.text.yaml_reader import Source

TEXT = """
dpolicy: 1
accounting: {delta: 1e-8%s}
schema: {attributes: {views: {risk: low}}}
policies:
  - {name: all, kind: custom, when: always, unit: user, budget: {epsilon: 6}}
each-release:
  - {name: cap, kind: custom, when: always, unit: user, profile: static, budget: {epsilon: 3}}
"""
#: The profile of policies that state none, with its shares of δ.
NEWEST_SPLIT = (Profile.ANCHORED, anchored_shares(DEFAULT_ORDERS))
SHARES = st.fractions(0, 1, max_denominator=1000).filter(lambda share: share < 1)
EPSILONS = st.fractions(0, 30, max_denominator=100)
DELTAS = st.integers(3, 14).map(lambda power: Fraction(1, 10**power))


def compiled(more: str = "", defaults: AccountingDefaults = NEWEST_DEFAULTS) -> CompiledPolicy:
    return compile_policy([Source("policy.yaml", TEXT % more)], defaults)


def order_masses(budget: EpsilonDelta, bound: BudgetBound) -> list[Fraction]:
    """Return δ_α = κ(α)·e^((α−1)(b−ε)) for each order that a bound offers (theory 1.3).

    All reserves share the mass of the largest variance that they admit (theory/reserves, 2).
    """
    masses, variances = [], [0]
    for ((certificate, quanta),) in bound.clauses:
        if certificate.notion in (Notion.MU, Notion.RESERVE):
            variances.append(quanta + reserve_quanta(certificate))
        elif certificate != PURE:
            gap = (Fraction(quanta, QUANTA_PER_UNIT) - budget.epsilon) * (certificate.order - 1)
            power = mp.e ** (mp.mpf(gap.numerator) / gap.denominator)
            masses.append(Fraction(mp.nstr(power, 40)) * twin.kappa(certificate.order))
    if max(variances):
        variance = mp.mpf(max(variances)) / QUANTA_PER_UNIT
        reached = gaussian_delta(mp.sqrt(variance), real(budget.epsilon))
        masses.append(Fraction(mp.nstr(reached + mp.mpf(LEAK_RATE) * variance, 40)))
    return masses


@settings(deadline=None)
@given(EPSILONS, DELTAS, SHARES, st.sampled_from([*product(Profile, [None]), NEWEST_SPLIT]))
def test_masses_and_leaks_stay_within_delta(
    epsilon: Fraction, delta: Fraction, leaks: Fraction, split: tuple[Profile, DeltaShares | None]
) -> None:
    """`static` needs the mass of one order only; the others need the sum (theory 2.3, 2.4)."""
    budget = EpsilonDelta(epsilon, delta)
    profile, shares = split
    bound = bound_for_budget(budget, profile, DEFAULT_ORDERS, leaks, shares)
    masses = order_masses(budget, bound)
    assert bound.delta == leaks * delta
    needed = max(masses, default=Fraction(0)) if profile is Profile.STATIC else sum(masses)
    assert needed <= (1 - leaks) * delta


@settings(deadline=None)
@given(EPSILONS, DELTAS, SHARES)
def test_classic_with_leaks_scales_the_weights_of_the_paper(
    epsilon: Fraction, delta: Fraction, leaks: Fraction
) -> None:
    """A naive twin: the threshold of κ(α), lower by log(S / (1 − leaks)) / (α − 1)."""
    budget = EpsilonDelta(epsilon, delta)
    bound = bound_for_budget(budget, Profile.CLASSIC, DEFAULT_ORDERS, leaks)
    offered = {c.order: Fraction(q, QUANTA_PER_UNIT) for ((c, q),) in bound.clauses if c != PURE}
    total = sum((twin.kappa(order) for order in DEFAULT_ORDERS), Fraction(0))
    scale = min(Fraction(1), (1 - leaks) / total)
    for order in DEFAULT_ORDERS:
        exact = epsilon - twin.log_inverse(delta * scale) / (order - 1)
        limit = offered.get(order)
        if limit is None:
            assert exact < Fraction(1, 10**9)
        else:
            assert 0 <= exact - limit < Fraction(1, 10**9)


@pytest.mark.parametrize("profile", (Profile.ANCHORED, Profile.STATIC))
def test_ten_percent_of_delta_is_for_leaks_by_default(profile: Profile) -> None:
    bound = bound_for_budget(EpsilonDelta(Fraction(6), Fraction("1e-8")), profile, DEFAULT_ORDERS)
    assert bound.delta == Fraction("1e-9")


def test_classic_keeps_the_split_of_the_paper_by_default() -> None:
    bound = compiled(", profile: classic").cumulative.rules[0].bound
    assert bound.delta == (1 - weight_sum(DEFAULT_ORDERS)) * Fraction("1e-8")
    assert bound == compiled(defaults=FIRST_DEFAULTS).cumulative.rules[0].bound


def test_all_rules_use_the_stated_share() -> None:
    policy = compiled(", leaks: 25 %")
    assert [rule.bound.delta for rule in policy.rules] == [Fraction("2.5e-9")] * 2


@pytest.mark.parametrize("text", ("25 %", "25%", "'25 %'", "0.25", "25.0 %"))
def test_percentages_and_numbers_state_the_same_share(text: str) -> None:
    policy = compiled(f", leaks: {text}")
    assert policy.accounting.leaks == Fraction(1, 4)
    assert policy.digest == compiled(", leaks: 0.25").digest != compiled().digest


@pytest.mark.parametrize(
    ("text", "code"),
    (("100 %", "P009"), ("1", "P009"), ("-0.1", "P009"), ("most", "P007"), ("[1]", "P007")),
)
def test_a_share_outside_the_range_is_an_error(text: str, code: str) -> None:
    with pytest.raises(PolicyRejected) as error:
        compiled(f", leaks: {text}")
    (diagnostic,) = error.value.diagnostics
    assert isinstance(diagnostic, Diagnostic) and diagnostic.code == code


def test_a_share_close_to_one_leaves_the_pure_certificate() -> None:
    almost = 1 - Fraction(1, 10**400)
    budget = EpsilonDelta(Fraction(6), Fraction("1e-8"))
    bound = bound_for_budget(budget, Profile.ANCHORED, DEFAULT_ORDERS, almost)
    assert [certificate for ((certificate, _),) in bound.clauses] == [PURE]


def test_a_recorded_text_without_a_share_keeps_its_split() -> None:
    """The digest is the content: the default of a version is not part of it."""
    old, new = compiled(defaults=FIRST_DEFAULTS), compiled()
    assert old.digest == new.digest
    assert old.each_release.rules[0].bound.delta == Fraction("1e-8") / 14
    assert new.each_release.rules[0].bound.delta == Fraction("1e-9")
