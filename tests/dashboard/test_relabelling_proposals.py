"""A proposed correction is listed and answered over HTTP and on the approvals page."""

from __future__ import annotations

import json
from typing import Any

from tests.dashboard.conftest import send_request
from tests.pdp.builders import GLOBAL, policy, pure

from dpolicy.demo.demo_server import serve_in_thread
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.api.response_schemas import _PROPOSAL
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import local_access


def test_a_proposed_correction_is_listed_and_approved() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    point.submit(pure("a", "1", "zip"))
    proposal = point.propose_relabelling(pure("a", "1", "views"), "it never read zip", "ana")
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        (listed,) = _get(f"{url}/v1/proposals")["proposals"]
        assert (listed["kind"], listed["about"], listed["by"]) == ("relabelling", "a", "ana")
        one = _get(f"{url}/v1/proposals/{proposal.number}")
        assert one["because"] == "it never read zip"
        assert one["body"]["mechanisms"][0]["attributes"] == ["views"]
        page = send_request(f"{url}/approvals", None, {"Accept": "text/html"}).text
        assert "it never read zip" in page and "views" in page
    assert listed["kind"] in _PROPOSAL["kind"]["enum"]
    point.approve(proposal.number, by="ben")
    meaning = point.meaning(point.entries["a"])
    assert meaning is not None and meaning.mechanisms[0].attributes == ("views",)


def _get(url: str) -> Any:
    return json.loads(send_request(url, None, {"Accept": "application/json"}).text)
