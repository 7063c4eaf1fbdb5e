"""Cost rules: the version of the bounds by which mechanisms are charged.

A recorded charge keeps its amount, so a tighter bound is a new version. The accounting defaults of
a policy select the version (`accounting_defaults.py`). Every version gives upper bounds.
"""

from __future__ import annotations

from enum import IntEnum


class CostRules(IntEnum):
    """Version of the bounds. No version charges more than an earlier one."""

    FIRST = 1

    #: Direct bounds for samples under `change`, Laplace noise in ρ and μ², exact fractional orders
    #: of sampled Gaussians, windows inside a block, participations in trees, composed answers, and
    #: sampled discrete Gaussians (docs/theory/tighter-costs.md).
    SECOND = 2


#: The version of new policies, and of commands without a policy.
NEWEST_RULES = CostRules.SECOND
