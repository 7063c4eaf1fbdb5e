"""Process that the test kills while it reads data: `python -m … MODE LEDGER`.

gated     reserve, read, commit
trusting  the canary: read, and charge when the result exists
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.pdp.builders import GLOBAL, mechanism, policy

from dpolicy.integrations.gate import Gate
from dpolicy.pdp.decision_point import DecisionPoint


def run_gated(point: DecisionPoint, read: Callable[[], None]) -> None:
    """Reserve the cost before reading."""
    with Gate(point).reserve("run", mechanism(epsilon=2), release="run"):
        read()


def run_trusting(point: DecisionPoint, read: Callable[[], None]) -> None:
    """Charge after reading, which is the mistake."""
    read()
    point.submit({"release": "run", "mechanisms": [mechanism(epsilon=2)]})


MODES = {"gated": run_gated, "trusting": run_trusting}


def read_slowly() -> None:
    """Print that reading has begun, and do not return."""
    print("reading", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    point = DecisionPoint(sys.argv[2])
    point.apply(policy(GLOBAL))
    MODES[sys.argv[1]](point, read_slowly)
