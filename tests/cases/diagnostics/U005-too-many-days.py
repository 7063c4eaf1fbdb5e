from datetime import date

from dpolicy.errors import InvalidValue
from dpolicy.privacy.units.calendar import DAY
from dpolicy.privacy.units.privacy_units import blocks_between

try:
    blocks_between(DAY, date(1600, 1, 1), date(2600, 1, 1))
except InvalidValue as error:
    print(error)
