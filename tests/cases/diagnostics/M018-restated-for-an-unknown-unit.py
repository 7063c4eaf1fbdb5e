from dpolicy.errors import InvalidValue
from dpolicy.privacy.certificates import PURE
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import NeighbouringRelation, PrivacyUnit

relation = NeighbouringRelation.ADD_REMOVE
user = PrivacyUnit("user", "user", None, relation)
mechanism, _ = parse_mechanism({"kind": "laplace", "scale": 10})
try:
    cost_by_unit(
        mechanism, user, relation, GroupContext((user,)), (PURE,), {"household": mechanism}
    )
except InvalidValue as error:
    print(error)
