"""A history and another policy → what that policy would have decided, release by release.

Every release is asked for again, in order, on an empty ledger under the other policy: what it would
have denied costs nothing afterwards. Past releases that were imported are charged whatever it says,
and what was voided is left out. The same as living the year again, but for its clock: a release is
decided in the month in which it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dpolicy.enforcement.check import Checks, certificates_of, decide
from dpolicy.enforcement.contents import Account, Content
from dpolicy.enforcement.resolution import resolve
from dpolicy.enforcement.state import DENIED, IMPORTED, VOIDED, State
from dpolicy.errors import InvalidValue
from dpolicy.ledger.canonical import decode
from dpolicy.releases.body import release_of
from dpolicy.rules.compiler import CompiledPolicy


class Asked(NamedTuple):
    """A release of the past: how it stands, and what it asks for."""

    release: str
    status: str
    content: int


@dataclass(frozen=True, slots=True)
class Past:
    """All that was asked for, in order; taken from a state at once, so that it need not wait."""

    releases: tuple[Asked, ...]
    contents: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A release that another policy would have decided otherwise, and the rules it would break."""

    release: str
    was: str
    would_be: str
    rules: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "release": self.release,
            "was": self.was,
            "would-be": self.would_be,
            "rules": [{"rule": rule, "unit": unit} for rule, unit in self.rules],
        }


def past_of(state: State) -> Past:
    """What was asked for, up to now."""
    releases = (Asked(name, e.status, e.content) for name, e in state.entries.items())
    return Past(tuple(releases), tuple(replace(content) for content in state.contents))


def replay(policy: CompiledPolicy, past: Past) -> list[Otherwise]:
    """The releases that a policy would have decided otherwise."""
    account = Account(policy)
    contents = [replace(content, releases=[], count=0) for content in past.contents]
    found, changed = [], set[int]()
    for asked in past.releases:
        content = contents[asked.content]
        if asked.status == VOIDED:
            continue
        broken = None
        if asked.status != IMPORTED:
            broken = _broken(policy, account, contents, changed, content)
            changed = set()
        allowed = not broken
        if allowed:
            content.count += 1
            changed.add(asked.content)
        if asked.status != IMPORTED and allowed == (asked.status == DENIED):
            would_be = "allowed" if allowed else DENIED
            found.append(Otherwise(asked.release, asked.status, would_be, broken or ()))
    return found


def _broken(
    policy: CompiledPolicy,
    account: Account,
    contents: list[Content],
    changed: set[int],
    content: Content,
) -> tuple[tuple[str, str], ...]:
    """The rules that a release would break, by name and unit; nothing if it is allowed."""
    balances = account.balances(contents, changed, content.month)
    body = {"release": "", "by": content.by, "mechanisms": decode(content.mechanisms)}
    try:
        mechanisms, problems = resolve(release_of(body), policy, certificates_of(policy))
        if problems:
            return ((str(problems[0]), ""),)
        verdict = decide(policy, balances, mechanisms, content.month)
    except InvalidValue as error:
        return ((str(error), ""),)
    if verdict.allowed:
        return ()
    said = [(text, "") for text in verdict.failed]
    said += [(f"no rule covers `{name}`", "") for name in verdict.uncovered]
    return (*said, *_names(verdict.checks))


def _names(checks: Sequence[Checks]) -> list[tuple[str, str]]:
    rules = [
        check.of.section.rules[number]
        for check in checks
        for number in sorted(check.numbers[~check.holds].tolist())
    ]
    return [(rule.name, rule.unit) for rule in rules]
