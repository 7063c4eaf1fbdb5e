"""The shell around `decide`: take the lock, catch up, decide, append, commit, and only then answer.

A repeated id returns the recorded answer for ever; the same id with another body is an error. No
"allowed" leaves before its event is durable, and if writing fails nothing was allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path

from dpolicy.balances.partition_space import partition_space_for
from dpolicy.errors import OperationRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.events import Event
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp import commands, proposals
from dpolicy.pdp.conflicts import find_conflicts
from dpolicy.pdp.journal import Clock, Journal, Result, WriteTransaction, read_event, utc_now
from dpolicy.pdp.ledger_state import LedgerState, Proposal, ReleaseEntry
from dpolicy.pdp.request_evaluation import (
    ensure_policy_unchanged,
    evaluate_release,
    parse_request,
    recorded_decision,
)
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy, load_policy


class DecisionPoint:
    """Decides releases against a policy and a ledger. Safe to share between threads."""

    def __init__(self, ledger: str | Path | LedgerStore, clock: Clock = utc_now) -> None:
        store = open_store(str(ledger)) if isinstance(ledger, str | Path) else ledger
        self._journal = Journal(store, clock)
        self._check: Callable[[LedgerState], None] = lambda _: None

    def bound_to_policy(self, policy: CompiledPolicy | None) -> DecisionPoint:
        """The same, but it writes only while the policy is in force by which somebody judged.

        What is found out before the lock is taken holds under it only then.
        """
        careful = copy(self)
        careful._check = lambda state: ensure_policy_unchanged(state, policy)
        return careful

    def close(self) -> None:
        """Let go of the ledger."""
        self._journal.close()

    def _write(self, work: Callable[[WriteTransaction], Result]) -> Result:
        def checked(log: WriteTransaction) -> Result:
            self._check(log.state)
            return work(log)

        return self._journal.write(checked)

    # What analysts call

    def submit(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and charge it, or return what was decided for this id before."""
        asked = parse_request(release)
        return self._write(lambda log: commands.decide_release(log, asked, by, reserve=False))

    def reserve(self, release: Release | Body, by: str = "") -> Decision:
        """Decide a release and hold its cost until it is committed or voided."""
        asked = parse_request(release)
        return self._write(lambda log: commands.decide_release(log, asked, by, reserve=True))

    def check(self, release: Release | Body) -> Decision:
        """What `submit` would answer now; nothing is written."""
        asked = parse_request(release)
        with self._journal.read() as state:
            known = state.entries.get(asked.id)
            if known is None:
                return evaluate_release(state, asked)
            return recorded_decision(
                read_event(self._journal.store, known.request_record), known.status, asked
            )

    def submit_batch(
        self, choose: Callable[[LedgerState], Sequence[Release]], by: str = ""
    ) -> tuple[Decision, ...]:
        """Submit what is chosen from the state, in one commit: all of it is allowed, or none."""
        return self._write(lambda log: commands.decide_batch(log, choose(log.state), by))

    def read_state(self, look: Callable[[LedgerState], Result]) -> Result:
        """What somebody reads off the state, which must not change it."""
        with self._journal.read() as state:
            return look(state)

    def commit(self, release: str, used: Release | Body | None = None, by: str = "") -> int:
        """End a reservation that was used, wholly or in part; the number of its event."""
        body = None if used is None else parse_request(used).body
        return self._write(lambda log: commands.commit_reservation(log, release, body, by))

    def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation of which somebody attests that nothing was computed from data."""
        return self._write(lambda log: commands.void_reservation(log, release, because, by))

    # What officers call

    def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] = (),
        by: str = "",
        because: str = "",
    ) -> int:
        """Put a policy in force. Raises `Conflicting` unless every conflict is accepted by name."""
        compiled = policy if isinstance(policy, CompiledPolicy) else load_policy(policy)
        return self._write(lambda log: commands.apply_policy(log, compiled, accept, by, because))

    def import_past(self, release: Release | Body, because: str = "", by: str = "") -> int:
        """Charge a release that has already happened, whatever the budgets say."""
        asked = parse_request(release)
        return self._write(lambda log: commands.import_release(log, asked, because, by))

    def relabel(self, release: Release | Body, because: str, by: str = "") -> int:
        """Describe a recorded release anew; its mechanisms must stay the same."""
        asked = parse_request(release)
        return self._write(lambda log: commands.relabel_release(log, asked, because, by))

    def budgets(self, at: Mapping[str, str] | None = None) -> list[RuleStatus]:
        """What was spent and is left, for every rule over all releases: at its worst place, or
        at the worst of those named, such as `{"country": "CH", "time": "2026-10"}`.
        """
        with self._journal.read() as state:
            place = (
                partition_space_for(state.policy).parse_location(at)
                if at and state.policy
                else None
            )
            return rule_statuses(state, place)

    def conflicts(self, policy: CompiledPolicy) -> list[RuleStatus]:
        """The rules of another policy that the past has already broken."""
        with self._journal.read() as state:
            return find_conflicts(state.with_policy(policy))

    # What needs two persons

    def propose(
        self, release: Release | Body, by: str, *, reserve: bool = False
    ) -> Decision | Proposal:
        """Let a release wait for a second person, or return what was decided for this id."""
        asked = parse_request(release)
        return self._write(lambda log: proposals.propose_release(log, asked, by, reserve))

    def propose_void(self, release: str, because: str, by: str) -> Proposal:
        """Let the end of a reservation wait for a second person."""
        return self._write(lambda log: proposals.propose_void(log, release, because, by))

    def propose_policy(
        self, policy: CompiledPolicy, accept: Sequence[str], by: str, because: str = ""
    ) -> Proposal:
        """Let a policy wait for a second person."""
        return self._write(lambda log: proposals.propose_policy(log, policy, accept, by, because))

    def approve(self, proposal: int, by: str, because: str = "") -> Decision | int:
        """Do what was proposed: the decision of a release, else the number of its event."""
        return self._write(lambda log: proposals.approve_proposal(log, proposal, by, because))

    def reject(self, proposal: int, by: str, because: str = "") -> int:
        """Refuse what was proposed; the number of the event."""
        return self._write(lambda log: proposals.reject_proposal(log, proposal, by, because))

    @property
    def proposals(self) -> Mapping[int, Proposal]:
        """Everything that was proposed, by the number of its event."""
        with self._journal.read() as state:
            return dict(state.proposals)

    def event(self, sequence: int) -> Event:
        """The event of a record that is there."""
        return read_event(self._journal.store, sequence)

    # What is looked up

    @property
    def head(self) -> Head:
        """The last record that this process knows to be durable; asked without waiting."""
        return self._journal.head

    def records(self, behind: int = 0) -> Iterator[Record]:
        """The durable records behind a number, in order."""
        return self._journal.store.records_after(behind)

    def find_release(self, release: str) -> tuple[ReleaseEntry, Event]:
        """How a release stands, and the event in which it was asked for."""
        with self._journal.read() as state:
            entry = state.entries.get(release)
        if entry is None:
            raise OperationRejected(f"there is no release `{release}`", "not-found")
        return entry, read_event(self._journal.store, entry.request_record)

    @property
    def policy(self) -> CompiledPolicy | None:
        """The policy in force."""
        with self._journal.read() as state:
            return state.policy

    @property
    def entries(self) -> Mapping[str, ReleaseEntry]:
        """Every release by its id."""
        with self._journal.read() as state:
            return dict(state.entries)
