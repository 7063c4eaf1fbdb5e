"""Methods of a decision point for past releases: imports, and what an import would change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from dpolicy.errors import InvalidValue
from dpolicy.pdp.commands import ANY_POLICY, ExpectedPolicy, ensure_policy
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.journal.write_transaction import WriteTransaction
from dpolicy.pdp.many_releases.batch_requests import require_list
from dpolicy.pdp.many_releases.import_commands import NO_DAYS, import_release, import_releases
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.pdp.rule_status import RuleStatus, rule_statuses
from dpolicy.releases.authors import fill_author, require_texts
from dpolicy.releases.body import Body
from dpolicy.releases.release import Release


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """What an import would change: new and recorded releases, and the rules it charges.

    `charged` has, for each rule whose status would change, the status before and after.
    """

    new: tuple[str, ...]
    recorded: Mapping[str, int]
    charged: tuple[tuple[RuleStatus, RuleStatus], ...]

    @property
    def new_conflicts(self) -> tuple[RuleStatus, ...]:
        """Rules that hold before the import and are exceeded after it."""
        return tuple(after for before, after in self.charged if before.holds and not after.holds)


class PastReleases:
    """Base of `DecisionPoint`: releases that happened before they were recorded."""

    _journal: Journal

    def import_past(
        self,
        release: Release | Body,
        because: str = "",
        by: str = "",
        *,
        released: str | None = None,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> int:
        """Charge a release that has already happened, regardless of the budgets.

        `by` is who imports it, and the author of a release that states none. `released` is the day
        on which it happened, such as `2024-03-01`.
        """
        (request,) = _parse_requests([release], because, by, [released] if released else [])

        def check_and_import(log: WriteTransaction) -> int:
            ensure_policy(log.state, expected_policy)
            return import_release(log, request, because, by, released)

        return self._journal.write(check_and_import)

    def import_many(
        self,
        releases: Sequence[Release | Body],
        because: str = "",
        by: str = "",
        *,
        released: Mapping[str, str] = NO_DAYS,
        expected_policy: ExpectedPolicy = ANY_POLICY,
    ) -> list[int]:
        """Do `import_past` for all releases in one commit; if one is rejected, write nothing.

        `released` has the days by the ids of the releases.
        """
        requests = _parse_requests(releases, because, by, released.values())

        def check_and_import(log: WriteTransaction) -> list[int]:
            ensure_policy(log.state, expected_policy)
            return import_releases(log, requests, because, by, released)

        return self._journal.write(check_and_import, len(requests))

    def preview_import(
        self,
        releases: Sequence[Release | Body],
        by: str = "",
        *,
        released: Mapping[str, str] = NO_DAYS,
    ) -> ImportPreview:
        """Return what `import_many` would change now; write nothing. Raise as it does."""
        requests = _parse_requests(releases, "", by, released.values())
        with self._journal.read_with_balances() as state:
            before = rule_statuses(state)
            trial = WriteTransaction(state.copy(), self._journal.store, self._journal.now())
            sequence = trial.state.sequence
            numbers = import_releases(trial, requests, "", by, released)
            trial.state.update_balances()
            after = rule_statuses(trial.state)
        named = {request.id: number for request, number in zip(requests, numbers, strict=True)}
        return ImportPreview(
            tuple(release for release, number in named.items() if number > sequence),
            {release: number for release, number in named.items() if number <= sequence},
            tuple((old, new) for old, new in zip(before, after, strict=True) if old != new),
        )


def _parse_requests(
    releases: Sequence[Release | Body], because: str, by: str, released: Iterable[str]
) -> list[Release]:
    """Return the releases with an author. Raise `InvalidValue` for an argument of another type."""
    require_list(releases)
    require_texts(because=because, by=by)
    for day in released:
        _require_day(day)
    return [fill_author(parse_request(release), by) for release in releases]


def _require_day(value: object) -> None:
    """Raise `InvalidValue` unless a value is a day such as 2024-03-01."""
    try:
        if type(value) is str and date.fromisoformat(value).isoformat() == value:
            return
    except ValueError:
        pass
    raise InvalidValue("P007", f"`released` is `{value!r:.80}`; help: give a day as 2024-03-01")
