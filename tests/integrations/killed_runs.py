"""What a process does that is killed while it reads data: `python -m … WAY LEDGER`.

gated     reserve, read, commit
trusting  the canary: read, and charge when the result is there
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.pdp.builders import GLOBAL, mechanism, policy

from dpolicy.integrations.gate import Gate
from dpolicy.pdp.decision_point import DecisionPoint


def gated(point: DecisionPoint, read: Callable[[], None]) -> None:
    """As it should be."""
    with Gate(point).reserve("run", mechanism(epsilon=2), release="run"):
        read()


def trusting(point: DecisionPoint, read: Callable[[], None]) -> None:
    """As many pipelines do it."""
    read()
    point.submit({"release": "run", "mechanisms": [mechanism(epsilon=2)]})


WAYS = {"gated": gated, "trusting": trusting}


def say_and_wait() -> None:
    """Read data, for ever."""
    print("reading", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    point = DecisionPoint(sys.argv[2])
    point.apply(policy(GLOBAL))
    WAYS[sys.argv[1]](point, say_and_wait)
