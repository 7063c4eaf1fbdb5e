"""Kill processes at random times, again and again, and count what a ledger has lost."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from tests.faults.fork_server import ForkServer, kill
from tests.ledger.store_access import Address

#: Confirmed names, such as ids of releases, with the last confirmed status of each.
Confirmed = dict[str, str]


def kill_once(
    server: ForkServer, task: str, address: Address, generator: random.Random, **options: int
) -> list[str]:
    """Start children, kill them at a random time, and return the lines that they have printed.

    `options` are those of `ForkServer.start`. In half of the cases the time is just after a line,
    which is when a store that confirms too early loses most.
    """
    children = server.start(task=task, address=address, **options)
    output = server.output()
    lines = list(islice(output, generator.choice([0, generator.randrange(1, 12)])))
    time.sleep(generator.choice([0.0, generator.uniform(0, 0.03)]))
    kill(children)
    lines += output
    assert set(server.exit_codes) == {-signal.SIGKILL}
    return [line.decode() for line in lines]


@dataclass(frozen=True)
class KillLoop:
    """Cycles of kills. Each ledger is used for `cycles_per_ledger` cycles.

    `check_probability` is the probability of a check between two cycles; otherwise the next child
    is the first to open the ledger that a killed child left. It is 0 for canaries, which may lose.
    """

    new_ledger: Callable[[], Address]
    run_and_kill: Callable[[Address], Confirmed]
    count_lost: Callable[[Confirmed, Address], int]
    cycles_per_ledger: int
    check_probability: float

    def run(self, cycles: int, generator: random.Random) -> int:
        """Return how many confirmed names were lost in all cycles."""
        lost = total = 0
        for start in range(0, cycles, self.cycles_per_ledger):
            address = self.new_ledger()
            confirmed: Confirmed = {}
            for _ in range(min(self.cycles_per_ledger, cycles - start)):
                newly_confirmed = self.run_and_kill(address)
                confirmed |= newly_confirmed
                total += len(newly_confirmed)
                if generator.random() < self.check_probability:
                    assert self.count_lost(confirmed, address) == 0
            lost += self.count_lost(confirmed, address)
        print(f"{cycles} cycles, {total} confirmed, {lost} lost")
        assert total
        return lost
