"""Methods of a decision point that compute what would fit now, and write nothing."""

from __future__ import annotations

from dataclasses import replace

from dpolicy.decisions.headroom.headroom import Headroom
from dpolicy.decisions.headroom.most_accurate import find_most_accurate
from dpolicy.errors import OperationRejected
from dpolicy.ledger.events import release_body_in
from dpolicy.pdp.denial_answers import copy_trials
from dpolicy.pdp.dry_runs.noise_calibration import CalibratedNoise, calibrate_mechanism
from dpolicy.pdp.dry_runs.release_headroom import release_headroom
from dpolicy.pdp.journal.folded_ledger import read_event
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.request_evaluation import parse_request, suggest_id
from dpolicy.releases.authors import require_author
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.release import Release


class DryRuns:
    """Base of `DecisionPoint`: questions about what would fit now."""

    _journal: Journal

    def calibrate(self, mechanism: Body, by: str = "") -> CalibratedNoise:
        """Return the least noise with which `submit` would allow a mechanism now; write nothing.

        `mechanism` has the fields of a mechanism in a release. Its noise, if stated, is replaced.
        Raise `Denied` if the policy allows it with no noise.
        """
        with self._journal.read_with_balances() as state:
            return calibrate_mechanism(state, mechanism, by)

    def headroom(
        self, release: Release | Body | str, by: str = "", *, most_accurate: bool = False
    ) -> Headroom:
        """Return how many more releases like this one `submit` would allow now; write nothing.

        `release` is a release, whose id does not count, or the id of a recorded release; then the
        content is the one that is charged. With `most_accurate`, search also the version with the
        least noise that fits now, which takes the time of up to 200 decisions.
        """
        if isinstance(release, str):
            request = self._recorded_release(release)
        else:
            request = require_author(parse_request(release), by)
        with self._journal.read_with_balances() as state:
            headroom = release_headroom(state, request)
            if not most_accurate:
                return headroom
            new_id, trials = suggest_id(state, request.id), copy_trials(state)
        offer = find_most_accurate(trials, request.body)
        if offer is None:
            return headroom
        return replace(headroom, most_accurate=offer.as_json(request.body, new_id))

    def _recorded_release(self, release: str) -> Release:
        with self._journal.read() as state:
            entry = state.entries.get(release)
        if entry is None:
            raise OperationRejected(f"there is no release `{release}`", "not-found")
        event = read_event(self._journal.store, entry.charge_record)
        return release_from_body(release_body_in(event))
