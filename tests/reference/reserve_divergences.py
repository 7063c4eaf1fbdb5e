"""Reserve costs by their definition, with 50 digits (theory/reserves).

A mechanism is a list of atoms (P, loss): the masses of its outcomes and the logarithms of their
likelihood ratios. Continuous mechanisms have the nodes of a quadrature as atoms.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
from mpmath.calculus.quadrature import GaussLegendre
from tests.reference.divergences import Real, gaussian_delta

from dpolicy.privacy.reserves.ladder import LEAK_RATE
from dpolicy.privacy.reserves.quadrature import ExcessCurve

Atoms = list[tuple[Real, Real]]

#: Masses below it change no digit that a test compares.
_SMALL = mp.mpf("1e-60")


def delta_at(variance: Real, x: Real) -> Real:
    """Return G(s, x): the δ of √s-GDP at any real x."""
    if x < 0:
        return 1 - mp.exp(x) + mp.exp(x) * gaussian_delta(mp.sqrt(variance), -x)
    return gaussian_delta(mp.sqrt(variance), x)


def divergence(atoms: Atoms, reserve: Real, x: Real) -> Real:
    """Return H_x(M ⊗ N_r)."""
    return mp.fsum(mass * delta_at(reserve, x - loss) for mass, loss in atoms)


def reverse(atoms: Atoms) -> Atoms:
    """Return the atoms of the other direction."""
    return [(mass * mp.exp(-loss), -loss) for mass, loss in atoms]


def excess(atoms: Atoms, reserve: Real, x: Real, cost: Real) -> Real:
    """Return H_x(M ⊗ N_r) − G(r + c, x) − τ·c: positive if the cost c is too low."""
    allowed = delta_at(reserve + cost, x) + mp.mpf(LEAK_RATE) * cost
    return divergence(atoms, reserve, x) - allowed


def response_atoms(epsilon: Real) -> Atoms:
    """Return the atoms of randomized response, the worst ε-DP mechanism."""
    truth = 1 / (1 + mp.exp(-epsilon))
    return [(truth, epsilon), (1 - truth, -epsilon)]


def gaussian_atoms(mu: Real, rate: Real) -> Atoms:
    """Return nodes of the trapezoidal rule, which converges exponentially here, over the output."""
    step = mp.mpf(1) / 8
    atoms = []
    for n in range(-128, 128 + int(8 * mu) + 8):
        z = n * step
        density = mp.npdf(z) * step
        ratio = 1 - rate + rate * mp.exp(mu * z - mu * mu / 2)
        if density * ratio > _SMALL:
            atoms.append((density * ratio, mp.log(ratio)))
    return atoms


def laplace_atoms(epsilon: Real) -> Atoms:
    """Return the two ends, which have mass, and Gauss–Legendre nodes between them."""
    degree = 5 if epsilon < mp.mpf("0.3") else 7
    nodes = GaussLegendre(mp.mp).calc_nodes(degree, mp.mp.prec)
    atoms = [(mp.mpf(1) / 2, epsilon), (mp.exp(-epsilon) / 2, -epsilon)]
    for position, weight in nodes:
        loss = epsilon * position
        atoms.append((weight * epsilon * mp.exp((loss - epsilon) / 2) / 4, loss))
    return atoms


def discrete_gaussian_atoms(sigma: Real) -> Atoms:
    """Return the atoms of integer Gaussian noise for a shift by one."""
    reach = int(16 * sigma) + 2
    weights = {z: mp.exp(-(mp.mpf(z) ** 2) / (2 * sigma**2)) for z in range(-reach, reach + 1)}
    total = mp.fsum(weights.values())
    return [(w / total, (2 * z + 1) / (2 * sigma**2)) for z, w in weights.items()]


def rare_jump(p: Real, t: Real) -> Atoms:
    """Return a mechanism with an outcome of probability p and loss t."""
    q = p * mp.exp(-t)
    return [(p, t), (1 - p, mp.log((1 - p) / (1 - q)))]


def curve_of_atoms(atoms: Atoms) -> ExcessCurve:
    """Return the excess curve of two atoms, with knots between them."""
    high, low = (float(loss) for _, loss in atoms)
    knots = np.unique(np.concatenate((np.linspace(low, 0.0, 40), np.linspace(0.0, high, 200))))
    heights = []
    for y in map(mp.mpf, knots.tolist()):
        reached = mp.fsum(m * max(1 - mp.exp(y - loss), 0) for m, loss in atoms)
        heights.append(float(mp.exp(-y / 2) * max(reached - max(1 - mp.exp(y), 0), 0)))
    raised = np.array(heights) * (1 + 1e-12)
    return ExcessCurve(knots, raised, is_symmetric=False)


def quanta_to_real(quanta: int) -> Real:
    """Return an amount in units."""
    return mp.mpf(quanta) / 10**12
