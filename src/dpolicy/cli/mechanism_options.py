"""Options that describe a mechanism as a release file does: unit, attributes, labels, region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from dpolicy.errors import InvalidValue, ReleaseRejected
from dpolicy.privacy.units.privacy_units import NeighbouringRelation

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Sign between the ends of a range in `--where` and `--time`.
RANGE = ".."

_OPTIONS = (
    click.option("--unit", help="Privacy unit for which the parameters are stated."),
    click.option(
        "--relation",
        type=click.Choice([str(relation.value) for relation in NeighbouringRelation]),
        help="Neighbouring relation; default: the relation of the unit.",
    ),
    click.option("--additive", is_flag=True, help="The mechanism is a sum over records."),
    click.option("--attributes", multiple=True, help="Attributes, separated by commas."),
    click.option("--label", multiple=True, help="Label as NAME=VALUE; repeatable."),
    click.option(
        "--where",
        multiple=True,
        help="Partition as NAME=VALUE,VALUE or NAME=FIRST..LAST; repeatable. Default: all.",
    ),
    click.option("--time", help="Days that are read, as FIRST..LAST. Default: static data."),
)

#: The option that supplies what a problem code of a release reports.
_REMEDIES: Mapping[str, str] = {
    "R001": "pass --unit",
    "R002": "pass --attributes with names that the policy defines",
    "R003": "pass --label with a name that the policy defines",
    "R004": "pass --label NAME=VALUE",
    "R005": "pass --label with a value that the policy allows",
    "R006": "pass --where with values that the policy defines",
    "R007": "pass --additive if the mechanism is a sum over records",
}


def mechanism_options(command: _Command) -> _Command:
    """Add the options that describe a mechanism to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def mechanism_fields(
    *,
    unit: str | None,
    relation: str | None,
    additive: bool,
    attributes: Sequence[str],
    label: Sequence[str],
    where: Sequence[str],
    time: str | None,
) -> dict[str, Any]:
    """Return the fields of a mechanism in a release. Raise `click.UsageError`."""
    names = [name.strip() for text in attributes for name in text.split(",") if name.strip()]
    labels: dict[str, list[str]] = {}
    for name, value in _pairs(label, "--label"):
        labels.setdefault(name, []).append(value)
    fields = {
        "unit": unit,
        "relation": relation,
        "additive": additive or None,
        "attributes": names,
        "labels": {name: v[0] if len(v) == 1 else v for name, v in labels.items()},
        "where": {name: _selection(value) for name, value in _pairs(where, "--where")},
        "time": None if time is None else _days(time),
    }
    return {name: value for name, value in fields.items() if value}


def name_missing_options(error: ReleaseRejected) -> ReleaseRejected:
    """Return the error with the option that solves each problem."""
    return ReleaseRejected(
        [
            InvalidValue(p.code, f"{p.message}; help: {_REMEDIES[p.code]}")
            if p.code in _REMEDIES
            else p
            for p in error.problems
        ]
    )


def _pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    for text, (name, _, value) in zip(texts, pairs, strict=True):
        if not (name.strip() and value.strip()):
            raise click.UsageError(f"`{option} {text}` must have the form NAME=VALUE")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def _selection(text: str) -> list[str] | dict[str, int]:
    if RANGE not in text:
        return [value.strip() for value in text.split(",")]
    first, _, last = text.partition(RANGE)
    try:
        return {"from": int(first), "to": int(last)}
    except ValueError:
        raise click.UsageError(f"`--where` has the range `{text}`, not two whole numbers") from None


def _days(text: str) -> dict[str, str]:
    first, sign, last = text.partition(RANGE)
    ends = {"from": first.strip(), "to": last.strip() if sign else first.strip()}
    return {name: day for name, day in ends.items() if day}
