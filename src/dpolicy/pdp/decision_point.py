"""Decision point: the interface for analysts, officers and approvers.

It returns a decision only after the record of the decision is durable; if writing fails, nothing
was allowed. A repeated id returns the recorded decision; the same id with another body is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import SupportsIndex

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.denial_advice.advice import SubmittedOffer
from dpolicy.errors import InvalidValue, OperationRejected
from dpolicy.ledger.chain import Record
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.events import Event, release_body_in
from dpolicy.ledger.store import LedgerStore
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp import commands, proposal_commands, relabelling
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy
from dpolicy.pdp.denial_answers import DenialAnswers
from dpolicy.pdp.dry_runs.dry_run_requests import DryRuns
from dpolicy.pdp.journal.folded_ledger import read_event
from dpolicy.pdp.journal.journal import Clock, Journal, Result, utc_now
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.many_releases.batch_requests import ManyReleases
from dpolicy.pdp.many_releases.past_releases import PastReleases
from dpolicy.pdp.plans.submissions import Submissions
from dpolicy.pdp.policy_changes.conflicts import PolicyConflict
from dpolicy.pdp.policy_changes.preparation import find_conflicts, write_prepared_policy
from dpolicy.pdp.policy_changes.prepared_policy import PreparedPolicy
from dpolicy.pdp.policy_changes.proposed_policy import write_approval, write_policy_proposal
from dpolicy.pdp.request_evaluation import (
    evaluate_release,
    parse_request,
    recorded_decision,
)
from dpolicy.pdp.spending.ledger_questions import LedgerQuestions
from dpolicy.pdp.state.charge_groups import PENDING_MEANINGS
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.pdp.state.proposal import Proposal
from dpolicy.pdp.state.release_archive import ReleaseEntry
from dpolicy.releases.authors import (
    fill_author,
    require_author,
    require_names,
    require_number,
    require_texts,
)
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.decision import Decision
from dpolicy.releases.meaning import ReleaseMeaning, meaning_from_text
from dpolicy.releases.release import Release
from dpolicy.rules.compiler import CompiledPolicy, load_policy
from dpolicy.text.summaries import html_line, one_line


class DecisionPoint(ManyReleases, PastReleases, DryRuns, LedgerQuestions):
    """Decides releases against the active policy and a ledger. Safe to share between threads.

    With `expected_policy`, a method raises `OperationRejected` (policy-changed) unless that policy
    is active when the method writes. A caller that checked a request under a policy passes it.
    """

    def __init__(self, ledger: str | Path | LedgerStore, clock: Clock = utc_now) -> None:
        store = open_store(str(ledger)) if isinstance(ledger, str | Path) else ledger
        if not hasattr(store, "open_for_writing"):
            message = f"`ledger` is a value of the type `{type(ledger).__name__}`"
            raise InvalidValue("P007", f"{message}; help: give a path, an address or `:memory:`")
        self._journal = Journal(store, clock)
        self._denial_answers = DenialAnswers(self._journal)
        self._submissions = Submissions(self._journal, self._denial_answers)

    def __repr__(self) -> str:
        position = f"record {self._journal.published.head.sequence}"
        return one_line(self, self._journal.store.name, position)

    def _repr_html_(self) -> str:
        return html_line(repr(self))

    def close(self) -> None:
        """Close the ledger."""
        self._journal.close()

    def _write(
        self,
        command: Callable[[WriteTransaction], Result],
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> Result:
        return commands.write_under_policy(self._journal, command, expected_policy)

    # For analysts

    def submit(
        self, release: Release | Body, by: str = "", *, expected_policy: ExpectedPolicy = ANY_POLICY
    ) -> Decision:
        """Decide a release and charge it; return the recorded decision for a repeated id.

        `by` is the author of a release that states none, and must equal a stated author.
        """
        return self._submissions.submit(release, by, expected_policy, reserve=False)

    def reserve(
        self, release: Release | Body, by: str = "", *, expected_policy: ExpectedPolicy = ANY_POLICY
    ) -> Decision:
        """Decide a release and hold its cost until it is committed, voided or expires."""
        return self._submissions.submit(release, by, expected_policy, reserve=True)

    def check(self, release: Release | Body, by: str = "") -> Decision:
        """Return the decision that `submit` would give now; write nothing."""
        request = require_author(parse_request(release), by)
        with self._journal.read_with_balances() as state:
            entry = state.entries.get(request.id)
            if entry is None:
                decision = evaluate_release(state, request)
            else:
                event = read_event(self._journal.store, entry.request_record)
                decision = recorded_decision(state, event, entry.status, request)
        return self._denial_answers.advise_check(request, decision)

    def submit_offer(
        self,
        release: Release | Body,
        number: int,
        by: str = "",
        *,
        new_id: str | None = None,
        reserve: bool = False,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> SubmittedOffer:
        """Submit counter-offer `number`, counted from 1, of a release that is denied now.

        The offer is chosen for the durable balances and submitted under `new_id` or an unused id.
        If another release is charged in between, it may be denied. Every call without `new_id`
        submits another release.
        """
        if not isinstance(number, SupportsIndex):
            raise InvalidValue("P007", f"`number` is `{number!r}`; help: give a whole number")
        request = require_author(parse_request(release), by)
        offered = parse_request(self._denial_answers.choose_offer(request, number, new_id))
        submit = self.reserve if reserve else self.submit
        return SubmittedOffer(offered.body, submit(offered, by, expected_policy=expected_policy))

    def submit_batch(
        self,
        select: Callable[[LedgerState], Sequence[Release]],
        by: str = "",
        *,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> tuple[Decision, ...]:
        """Submit the releases that `select` returns, in one commit; all are allowed, or none.

        `select` runs under the write lock, on a state with updated balances.
        """

        def select_and_decide(log: WriteTransaction) -> tuple[Decision, ...]:
            log.state.update_balances()
            return commands.decide_batch(log, select(log.state), by)

        return self._write(select_and_decide, expected_policy)

    def read_state(self, read: Callable[[LedgerState], Result]) -> Result:
        """Return what `read` computes from the state; `read` must not change the state."""
        with self._journal.read_with_balances() as state:
            return read(state)

    def read_entries(self, read: Callable[[LedgerState], Result]) -> Result:
        """Return what `read` computes from the state without its balances, which may be old.

        After a restart or a policy change this is much quicker than `read_state`.
        """
        with self._journal.read() as state:
            return read(state)

    def commit(
        self,
        release: str,
        used: Release | Body | None = None,
        by: str = "",
        *,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> int:
        """End a reservation as used, wholly or by a smaller release; return the record number."""
        require_texts(release=release, by=by)
        request = None if used is None else parse_request(used)
        return self._write(
            lambda log: commands.commit_reservation(log, release, request, by), expected_policy
        )

    def void(self, release: str, because: str, by: str = "") -> int:
        """End a reservation as unused; return the record number.

        The caller attests that nothing was computed from data.
        """
        require_texts(release=release, because=because, by=by)
        return self._write(lambda log: commands.void_reservation(log, release, because, by))

    # For officers

    def apply(
        self,
        policy: CompiledPolicy | str | Path,
        accept: Sequence[str] | str = (),
        by: str = "",
        because: str = "",
        *,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> int:
        """Activate a policy; return the record number.

        Raise `PolicyConflicts` unless all conflicts are accepted by name. A text is one name;
        a name that is no conflict is an error.
        """
        require_names("accept", accept)
        require_texts(by=by, because=because)
        compiled = policy if isinstance(policy, CompiledPolicy) else load_policy(policy)

        def check(state: LedgerState) -> None:
            commands.ensure_policy(state, expected_policy)

        def apply_prepared_policy(log: WriteTransaction, prepared: PreparedPolicy | None) -> int:
            check(log.state)
            return commands.apply_policy(log, compiled, accept, by, because, prepared)

        return write_prepared_policy(self._journal, compiled, apply_prepared_policy, check)

    def relabel(self, release: Release | Body, because: str, by: str = "") -> int:
        """Correct what a recorded release states about its mechanisms; return the record number.

        The mechanisms and the author must stay. Raise `OperationRejected` (second-person) if a
        charge would fall: propose it with `propose_relabelling`.
        """
        require_texts(because=because, by=by)
        request = parse_request(release)
        return self._write(lambda log: relabelling.relabel_release(log, request, because, by))

    def conflicts(self, policy: CompiledPolicy) -> list[PolicyConflict]:
        """Return the conflicts of a candidate policy with recorded releases.

        They are the names that it redefines and the rules that recorded releases exceed.
        """
        return find_conflicts(self._journal, policy)

    # For proposals and approvers

    def propose(
        self,
        release: Release | Body,
        by: str,
        *,
        reserve: bool = False,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> Decision | Proposal:
        """Propose a release; return the recorded decision for a repeated id.

        `by` proposes it, and is the author of a release that states none.
        """
        request = fill_author(parse_request(release), by)
        answer = self._write(
            lambda log: proposal_commands.propose_release(log, request, by, reserve),
            expected_policy,
        )
        if isinstance(answer, Proposal):
            return answer
        return self._denial_answers.advise_submission(request, answer)

    def propose_void(self, release: str, because: str, by: str) -> Proposal:
        """Propose to end a reservation as unused."""
        require_texts(release=release, because=because, by=by)
        return self._write(lambda log: proposal_commands.propose_void(log, release, because, by))

    def propose_relabelling(self, release: Release | Body, because: str, by: str) -> Proposal:
        """Propose a correction of a recorded release that lowers a charge."""
        require_texts(because=because, by=by)
        request = parse_request(release)
        return self._write(
            lambda log: proposal_commands.propose_relabelling(log, request, because, by)
        )

    def propose_policy(
        self, policy: CompiledPolicy, accept: Sequence[str] | str, by: str, because: str = ""
    ) -> Proposal:
        """Propose a policy. Raise `PolicyConflicts` as `apply` does."""
        require_names("accept", accept)
        require_texts(by=by, because=because)
        return write_policy_proposal(self._journal, policy, accept, by, because)

    def approve(self, proposal: int, by: str, because: str = "") -> Decision | int:
        """Approve a proposal and carry it out; return the decision, or the record number."""
        require_number("proposal", proposal)
        require_texts(by=by, because=because)
        answer = write_approval(self._journal, proposal, by, because)
        if isinstance(answer, int):
            return answer
        event = read_event(self._journal.store, answer.sequence or 0)
        return self._denial_answers.advise_submission(
            release_from_body(release_body_in(event)), answer
        )

    def reject(self, proposal: int, by: str, because: str = "") -> int:
        """Reject a proposal; return the record number."""
        require_number("proposal", proposal)
        require_texts(by=by, because=because)
        return self._write(
            lambda log: proposal_commands.reject_proposal(log, proposal, by, because)
        )

    @property
    def proposals(self) -> Mapping[int, Proposal]:
        """All proposals by record number."""
        with self._journal.read() as state:
            return dict(state.proposals)

    # Ledger

    def event(self, sequence: int) -> Event:
        """Return the event of a record that exists."""
        return read_event(self._journal.store, sequence)

    @property
    def head(self) -> Head:
        """The last record that this process knows to be durable; does not wait for the lock."""
        return self._journal.published.head

    def records(self, behind: int = 0) -> Iterator[Record]:
        """Read the durable records after number `behind`, in order."""
        return self._journal.store.records_after(behind)

    def find_release(self, release: str) -> tuple[ReleaseEntry, Event]:
        """Return the entry of a release and the event of its request."""
        with self._journal.read() as state:
            entry = state.entries.get(release)
        if entry is None:
            raise OperationRejected(f"there is no release `{release}`", "not-found")
        return entry, read_event(self._journal.store, entry.request_record)

    def meaning(self, entry: ReleaseEntry) -> ReleaseMeaning | None:
        """Return the recorded meaning of a release; None if no policy could complete it yet."""
        with self._journal.read() as state:
            text = state.charge_groups[entry.charge_group].meaning
        return None if text in PENDING_MEANINGS else meaning_from_text(text)

    @property
    def policy(self) -> CompiledPolicy | None:
        """The active policy."""
        with self._journal.read() as state:
            return state.policy

    @property
    def enforced_policy(self) -> EnforcedPolicy | None:
        """The active policy, compiled for enforcement."""
        with self._journal.read() as state:
            return state.enforced

    @property
    def entries(self) -> Mapping[str, ReleaseEntry]:
        """All releases by id."""
        with self._journal.read() as state:
            return dict(state.entries.items())
