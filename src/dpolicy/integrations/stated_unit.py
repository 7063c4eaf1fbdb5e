"""Unit and relation that a gate states in every mechanism.

A mechanism that leaves them out gets the defaults of the policy at that time. A gate therefore
states them, so that its record does not depend on these defaults.
"""

from __future__ import annotations

from dpolicy.errors import OperationRejected


def state_unit(
    point: object, unit: str | None, relation: str | None
) -> tuple[str | None, str | None]:
    """Return the unit and relation, completed from the active policy of a decision point.

    Refuse a gate without a unit if the policy has several. A client of a server does not have the
    policy; then the server decides about what is missing.
    """
    policy = getattr(point, "policy", None)
    if policy is None:
        return unit, relation
    units = policy.checked_policy_set.vocabulary.units
    if unit is None and len(units) > 1:
        names = ", ".join(f"`{name}`" for name in units)
        raise OperationRejected(
            f"the gate states no unit, and the policy has {names}; help: pass `unit` to the gate"
        )
    stated = unit if unit is not None else next(iter(units))
    if relation is None and stated in units:
        relation = str(units[stated].relation)
    return stated, relation
