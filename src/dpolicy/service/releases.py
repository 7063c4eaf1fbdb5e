"""Releases: asked for, checked, held, ended, looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpolicy.language.release import RELEASE, release_from
from dpolicy.language.shape import INVALID
from dpolicy.language.source import Node, Report
from dpolicy.service.endpoint import Answer, Call, Endpoint
from dpolicy.service.principal import Role


@dataclass(frozen=True, slots=True)
class ReleaseShape:
    """A release as it is written in a file."""

    title: str = "a release"

    def read(self, node: Node, report: Report) -> Any:
        """The release, or INVALID."""
        return release_from(node, report) or INVALID

    def schema(self) -> dict[str, Any]:
        """The same as JSON Schema."""
        return RELEASE.schema()


def submit(call: Call) -> Answer:
    """Decide a release."""
    return Answer(call.point.submit(call.body, call.principal.name).as_json())


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/releases",
        "submit",
        "Decide a release and charge it.",
        submit,
        frozenset({Role.ANALYST}),
        "Decision",
        body=ReleaseShape(),
    ),
)
