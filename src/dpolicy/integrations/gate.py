"""A run of a library → a release, reserved before the run and committed after it (theory 2.6, 7).

A denial is raised before anything was read. Once the run has begun, its cost is spent whatever
happens: an exception, a timeout or a killed process may depend on the data, and is then an output.
Only what never read anything is voided, by whoever can say so. A re-run is a new release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol
from uuid import uuid4

from dpolicy.errors import Denied, OperationRejected, RequestRefused
from dpolicy.releases.body import Body
from dpolicy.releases.decision import Decision


class ReservationService(Protocol):
    """A decision point, in this process or behind a client."""

    def reserve(self, release: Body, /) -> Decision:
        """Decide a release and hold its cost."""

    def commit(self, release: str, /, used: Body | None = None) -> object:
        """End a reservation that was used, wholly or in part."""

    def void(self, release: str, /, because: str) -> object:
        """End a reservation of which nothing was computed."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What is the same for every mechanism of a pipeline, and the point that decides.

    The fields are those of a release (docs/releases.md). `attributes` are all that may influence an
    output; integrations that can read them off a query refuse one that uses others.
    """

    point: ReservationService
    by: str = ""
    labels: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    attributes: Sequence[str] = ()
    unit: str | None = None
    relation: str | None = None
    additive: bool = False
    where: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    time: Mapping[str, Any] | None = None

    def mechanism_fields(
        self,
        mechanism: Mapping[str, Any],
        *,
        also: Mapping[str, Mapping[str, Any]] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """One mechanism of a release; `also` restates it for other units than the gate's."""
        said = {
            "name": name,
            "mechanism": mechanism,
            "also": also,
            "unit": self.unit,
            "relation": self.relation,
            "additive": self.additive,
            "attributes": self.attributes,
            "labels": self.labels,
            "where": self.where,
            "time": self.time,
        }
        return {key: value for key, value in said.items() if value}

    def reserve(self, name: str, *mechanisms: Body, release: str | None = None) -> GatedRun:
        """Hold the cost of mechanisms, or raise `Denied`. Run them `with` what is returned.

        The id of the release is the name and something that makes it unique, so that every run is
        charged. Who gives the id of the `release` can run it once, for ever.
        """
        asked = self._body(release or f"{name}-{uuid4().hex}", mechanisms)
        decision = self.point.reserve(asked)
        if not decision.allowed:
            raise Denied(decision)
        if release and decision.replayed:  # a unique id is replayed only by a client that retries
            raise OperationRejected(
                f"`{release}` was run before; a re-run is another release: name it anew"
            )
        return GatedRun(self, asked, decision)

    def _body(self, release: str, mechanisms: Sequence[Body]) -> Body:
        body: dict[str, Any] = {"release": release, "mechanisms": list(mechanisms)}
        return {**body, "by": self.by} if self.by else body


class GatedRun:
    """A reserved release, while it is run. Leaving it commits: in full after any exception."""

    def __init__(self, gate: Gate, body: Body, decision: Decision) -> None:
        self.release: str = body["release"]
        self.decision = decision
        self._gate = gate
        self._asked = body
        self._used: Body | None = None
        self._open = True

    def report_used(self, *mechanisms: Body) -> None:
        """Say that less was run than reserved; it holds if the run then ends without exception.

        Sound only if stopping depended on nothing but outputs (theory 7).
        """
        self._check_open()
        self._used = self._gate._body(self.release, mechanisms)

    def void_unread(self, because: str) -> None:
        """Void the release: it is certain that no data was read, and none will be."""
        self._check_open()
        self._gate.point.void(self.release, because=because)
        self._open = False

    def commit(self) -> None:
        """End the run, charged for what was used."""
        self._check_open()
        self._open = False
        self._end()

    def _end(self) -> None:
        try:
            self._gate.point.commit(self.release, used=self._used)
        except OperationRejected:
            if self._used is not None or not self._ran_out():
                raise
        except RequestRefused as error:
            if self._used is None or error.code != "needs-second-person":
                raise
            self._used = None  # nobody gives back alone there: all of it is spent
            self._end()

    def _ran_out(self) -> bool:
        """Whether the reservation ended by itself, in a long run, and so counts as spent.

        Asked for again, it is then still allowed; of one that somebody voided nothing is.
        """
        return self._gate.point.reserve(self._asked).allowed

    def _check_open(self) -> None:
        if not self._open:
            raise OperationRejected(f"the run of `{self.release}` has ended")

    def __enter__(self) -> GatedRun:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._open:
            return
        if error is not None:
            self._used = None  # why it was raised may depend on data: nothing is given back
        self.commit()
