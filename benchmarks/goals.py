"""Table of the goals of speed, as ratios of one run: `make bench-goals`.

Each line has what was measured, the value, the goal, and whether it is met; docs/performance.md
explains the lines. `--only NAME` runs single groups of lines. By default the run takes about five
minutes on two busy cores; `--full` uses ledgers of the size that the goals name.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.goal_lines.applying import measure_applying
from benchmarks.goal_lines.decisions import measure_decisions
from benchmarks.goal_lines.durable import measure_postgres, measure_sqlite
from benchmarks.goal_lines.ledgers import measure_ledgers
from benchmarks.goal_lines.line import Line, Options, print_head
from benchmarks.goal_lines.locks import measure_locks
from benchmarks.goal_lines.servers import measure_http, measure_two_servers
from benchmarks.goal_lines.start import measure_start

GROUPS: dict[str, Callable[[Options], list[Line]]] = {
    "sqlite": measure_sqlite,
    "postgres": measure_postgres,
    "decisions": measure_decisions,
    "locks": measure_locks,
    "http": measure_http,
    "servers": measure_two_servers,
    "apply": measure_applying,
    "ledgers": measure_ledgers,
    "start": measure_start,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Print the goals of speed, as ratios of one run.")
    parser.add_argument("--only", action="append", choices=GROUPS, help="run only this group")
    parser.add_argument("--full", action="store_true", help="use ledgers of full size")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of a measurement")
    parser.add_argument("--rounds", type=int, default=2, help="repetitions; the best counts")
    parser.add_argument("--contents", type=int, help="contents that `apply` folds")
    parser.add_argument("--events", type=int, help="length of the ledger that is opened")
    parser.add_argument("--verified", type=int, help="length of the ledger that is verified")
    parser.add_argument("--folder", help="where ledgers are written; must be on a disk")
    parser.add_argument("--before", help="folder `src` of an earlier version, to compare with")
    chosen = parser.parse_args()
    contents, events, verified = (
        (100_000, 1_000_000, 100_000) if chosen.full else (5_000, 24_000, 1_200)
    )
    print_head()
    for name in chosen.only or GROUPS:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            options = Options(
                folder=Path(folder),
                seconds=chosen.seconds,
                rounds=chosen.rounds,
                contents=chosen.contents or contents,
                events=chosen.events or events,
                verified=chosen.verified or verified,
                before=chosen.before,
            )
            for line in GROUPS[name](options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
