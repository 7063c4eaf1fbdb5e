"""Claims about a scope: whether a proof implies one, and whether a history breaks it."""

from __future__ import annotations

import math
from fractions import Fraction

from dpolicy.errors import InvalidValue
from dpolicy.privacy.budget import Budget, EpsilonDelta, Gdp, Zcdp
from dpolicy.privacy.certificates import MU_SQUARED, QUANTA_PER_UNIT, RHO
from dpolicy.privacy.conversion import gaussian_log_delta
from dpolicy.proofs.history import History
from dpolicy.proofs.proof import Proof

#: A claim that a history exceeds by less than this share counts as not exceeded.
_MARGIN = 1e-9

#: What the rounding of one cost can add to its exact value.
_ROUNDING = Fraction(2, QUANTA_PER_UNIT)


def read_number(value: Fraction | float | str) -> Fraction:
    """Return a number of a claim as written: 0.1 is one tenth. Raise `InvalidValue` (Q005)."""
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise InvalidValue("Q005", f"`{value}` is not a number") from None


def make_claim(
    epsilon: Fraction | None = None,
    delta: Fraction | None = None,
    rho: Fraction | None = None,
    mu: Fraction | None = None,
) -> Budget | None:
    """Return the claimed bound, or None. Raise `InvalidValue` (Q005) if it is none."""
    if sum(value is not None for value in (epsilon, rho, mu)) > 1:
        raise InvalidValue("Q005", "a claim has one of ε, ρ and μ; help: check them one by one")
    if any(value is not None and value < 0 for value in (epsilon, rho, mu)):
        raise InvalidValue("Q005", "a claim is at least 0")
    if delta is not None and (epsilon is None or not 0 <= delta < 1):
        raise InvalidValue("Q005", "δ belongs to a claimed ε, and is at least 0 and below 1")
    if epsilon is not None:
        return EpsilonDelta(epsilon, delta or Fraction(0))
    if rho is not None:
        return Zcdp(rho)
    return None if mu is None else Gdp(mu)


def implies_claim(proof: Proof, claim: Budget) -> bool:
    """Return whether the bound of a proof implies the claim."""
    match claim:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            own = proof.epsilon(delta)
            return own is not None and Fraction(repr(own)) <= epsilon
        case Zcdp(rho=rho):
            return proof.certificate == RHO and proof.amount <= rho
        case Gdp(mu=mu):
            return proof.certificate == MU_SQUARED and proof.amount <= mu * mu
        case _:
            return False


def breaks_claim(history: History, claim: Budget) -> bool:
    """Return whether the exact loss of a history is above the claim.

    All mechanisms of a history are of one kind. A leak has no ρ and no μ, and its δ at every ε.
    Gaussians of ρ in all have μ² = 2ρ, and their δ at ε is known. n Laplace mechanisms of ε' in all
    have the loss ε' with probability 2⁻ⁿ, so δ at ε is at least 2⁻ⁿ(1 − e^(ε − ε')).
    """
    if history.kind == "declared":
        return not isinstance(claim, EpsilonDelta) or history.reached > claim.delta
    total = float(history.reached - _ROUNDING * len(history.releases))
    if total <= 0:
        return False
    if history.kind == "laplace":
        if not isinstance(claim, EpsilonDelta) or total <= claim.epsilon:
            return False
        leak = math.ldexp(-math.expm1(float(claim.epsilon) - total), -len(history.releases))
        return leak > float(claim.delta) * (1 + _MARGIN)
    match claim:
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            log_delta = gaussian_log_delta(math.sqrt(2 * total), float(epsilon))
            return not delta or bool(log_delta > math.log(delta) + _MARGIN)
        case Zcdp(rho=rho):
            return total > rho * (1 + Fraction(_MARGIN))
        case Gdp(mu=mu):
            return 2 * total > mu * mu * (1 + Fraction(_MARGIN))
        case _:
            return False


def needed_amount(claim: Budget, kind: str) -> Fraction:
    """Return an amount of pure ε (`laplace`) or ρ (`gaussian`) that is just above the claim."""
    match claim:
        case EpsilonDelta(epsilon=epsilon):
            amount = epsilon if kind == "laplace" else _gaussian_rho(claim)
        case Zcdp(rho=rho):
            amount = rho
        case Gdp(mu=mu):
            amount = mu * mu / 2
        case _:
            amount = Fraction(0)
    return amount * (1 + Fraction(1, 10**6)) + Fraction(1, 10**6)


def _gaussian_rho(claim: EpsilonDelta) -> Fraction:
    """Return about the ρ at which Gaussian noise has the claimed ε at δ, by bisection."""
    if not claim.delta:
        return Fraction(0)
    low, high = 1e-9, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        if gaussian_log_delta(math.sqrt(2 * middle), float(claim.epsilon)) > math.log(claim.delta):
            high = middle
        else:
            low = middle
    return Fraction(high)
