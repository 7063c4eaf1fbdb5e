"""Requests with a plan, which `submit` prepares before it is the writer.

The key of a plan is the content of a request without its id, so that a repeated content is not
prepared again. The content of a mapping is its `marshal` bytes: equal bytes mean equal values of
equal built-in types. `marshal` writes NumPy numbers as bytes, so a plan is kept only for a content
without bytes. The content of a parsed release is the `repr` of its body, which has plain values.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.errors import InvalidValue, InvariantBroken, ReleaseRejected
from dpolicy.pdp.journal.journal import PublishedState
from dpolicy.pdp.plans.decision_plan import DecisionPlan, plan_release
from dpolicy.pdp.request_evaluation import parse_request
from dpolicy.releases.authors import require_author, require_text
from dpolicy.releases.body import Body
from dpolicy.releases.python.quick_reader import read_plain
from dpolicy.releases.release import Release
from dpolicy.releases.release_parser import release_with_id

#: Largest number of plans. A plan has a few integers for each matching rule.
MAX_PLANS = 1024

#: Largest content, in characters or bytes, whose plan is kept.
MAX_CONTENT = 16_384

#: Weight of each box of a release with several boxes, which is decided without its plan.
BOX_WEIGHT = 8

#: Ids that every reader of releases accepts as they are.
_PLAIN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,98}[A-Za-z0-9])?", re.ASCII)


class RejectedContent(NamedTuple):
    """Why a policy rejects a content on a day. The writer need not resolve it again."""

    enforced: EnforcedPolicy
    day: int
    problems: Sequence[InvalidValue]

    def is_for(self, enforced: EnforcedPolicy | None, day: int) -> bool:
        """Return whether the content was resolved under a policy and on a day."""
        return self.enforced is enforced and self.day == day


class PlannedRequest(NamedTuple):
    """The id of a request, and its release or the plan of its content."""

    id: str
    plan: DecisionPlan | None
    release: Release | None
    rejected: RejectedContent | None = None

    @property
    def weight(self) -> int:
        """About how many releases with one box can be decided in the time of this one."""
        boxes = 1 if self.plan is None else self.plan.region_count
        return 1 if boxes == 1 else BOX_WEIGHT * boxes

    def read_release(self) -> Release:
        """Return the release; for a planned one, the release of the plan under this id."""
        if self.release is not None:
            return self.release
        if self.plan is None:
            raise InvariantBroken("a request has neither a release nor a plan")
        return release_with_id(self.plan.release, self.id)


class PlanMemo:
    """Plans of the contents that were requested under the published policy. Safe to share.

    It changes how fast an answer comes, never which answer: the writer checks that a plan applies.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[str, bytes | str], DecisionPlan] = {}

    def plan(self, release: Release | Body, by: str, published: PublishedState) -> PlannedRequest:
        """Read a request, and find or make the plan of its content.

        Raise `MalformedRelease`, `ReleaseRejected` for another author, or `InvalidValue` if `by` is
        no text.
        """
        require_text("by", by)
        key = _content_key(release, by)
        if key is not None:
            plan = self._plans.get(key[1:])
            if plan is not None and plan.is_for(published.enforced, published.today):
                return PlannedRequest(key[0], plan, None)
        request, key = _parse_content(release, key)
        request = require_author(request, by)
        plan, rejected = _try_plan(request, by, published)
        if key is not None and plan is not None and plan.fixed is not None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[key[1:]] = plan
        return PlannedRequest(request.id, plan, request, rejected)


#: The id of a request, its author, and all else.
PlanKey = tuple[str, str, bytes | str]


def _content_key(release: Any, by: str) -> PlanKey | None:
    """Return the id of a request, its author, and all else as a hashable value.

    Return None for a large request, and for one with values of other than built-in types.
    """
    is_parsed = type(release) is Release and release.is_parsed
    if not is_parsed and type(release) is not dict:
        return None
    content = dict(release.body if is_parsed else release)
    name = content.pop("release", None)
    if type(name) is not str or not _PLAIN_ID.fullmatch(name):
        return None
    try:
        key = repr(content) if is_parsed else marshal.dumps(content, 2)
    except ValueError:
        return None
    return (name, by, key) if len(key) <= MAX_CONTENT else None


def _parse_content(release: Release | Body, key: PlanKey | None) -> tuple[Release, PlanKey | None]:
    """Parse a request; return it with the key of its plan, None if the plan must not be kept.

    The caller may change a request at any time, so the plan of a key is made from a copy.
    """
    if key is None:
        return parse_request(release), None
    if isinstance(release, Release):
        copied = parse_request(release)
        return copied, _content_key(copied, key[1])
    content = _copy_content(release, key)
    request = read_plain(content)  # refuses bytes
    if request is None and _has_bytes(content):
        return parse_request(release), None
    return request or parse_request(content), key


def _copy_content(_release: Body, key: PlanKey) -> dict[str, Any]:
    """Return the mapping from which the key of a mapping was made."""
    content: dict[str, Any] = marshal.loads(key[2])  # type: ignore[arg-type]
    return {"release": key[0], **content}


def _has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_bytes(key) or _has_bytes(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_bytes(item) for item in value)
    return isinstance(value, bytes)


def _try_plan(
    release: Release, by: str, published: PublishedState
) -> tuple[DecisionPlan | None, RejectedContent | None]:
    """Return a plan under the published policy, or why that policy rejects the release.

    Without a published policy, or if the release cannot be planned, return neither.
    """
    enforced, day = published.enforced, published.today
    if enforced is None:
        return None, None
    try:
        return plan_release(enforced, release, by, day), None
    except ReleaseRejected as error:
        return None, RejectedContent(enforced, day, error.problems)
    except InvalidValue:
        return None, None
