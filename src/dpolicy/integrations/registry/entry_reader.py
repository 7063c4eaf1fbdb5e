"""Statements of a registry entry: its name, its unit, its loss and the number of its releases.

The module reads all layouts of an entry, and needs no policy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpolicy.integrations.registry.registry_export import url_slug
from dpolicy.integrations.value_reader import ProblemCodes, ValueReader, lookup, shorten

_CODES = ProblemCodes(wrong_type="G001", missing="G001", out_of_range="G001", duplicate="G001")

#: Parameters that state each variant. Older entries write one variant without its hyphen.
_VARIANT_PARAMETERS = {
    "pure dp": ("epsilon",),
    "approximate dp": ("epsilon", "delta"),
    "zero-concentrated dp": ("rho",),
    "zero concentrated dp": ("rho",),
    "renyi dp": ("epsilon", "delta"),
    "gaussian dp": ("mu",),
}

#: Paths of the name in the current layout and in the two earlier ones.
_NAME_PATHS = ("url_slug", "deployment.basic.name", "deployment.product.name", "deployment.name")

#: Paths that state whether an entry covers one release, in all layouts.
_RELEASE_TYPE_PATHS = tuple(
    f"deployment.{section}.{key}"
    for section in ("deployment_model", "model")
    for key in ("release_type", "is_many_release")
)
_SINGLE_RELEASE = (False, "One release", "One-shot")

LOSS_PATH = "deployment.privacy_loss"
UNIT_PATH = f"{LOSS_PATH}.privacy_unit"
PARAMETERS_PATH = f"{LOSS_PATH}.privacy_parameters"

_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,2})?")


class EntryReader(ValueReader):
    """Reader of one entry."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        super().__init__(_CODES)
        self._entry = entry

    def read_slug(self) -> str:
        """Return the name of the entry in the form of a release id; report an entry without one."""
        names = [lookup(self._entry, path) for path in _NAME_PATHS]
        texts = [name for name in names if isinstance(name, str) and name.strip()]
        if not texts:
            self.report("G001", "the entry", "`url_slug` and `name` are missing")
        return url_slug(texts[0] if texts else "")

    def is_single_release(self) -> bool:
        """Return True only if the entry states so in every field that it has."""
        values = [lookup(self._entry, path) for path in _RELEASE_TYPE_PATHS]
        stated = [value for value in values if value is not None]
        return bool(stated) and all(value in _SINGLE_RELEASE for value in stated)

    def read_loss(self) -> dict[str, Any] | None:
        """Return the parameters of the stated loss as a declared mechanism has them, or None."""
        parameters = lookup(self._entry, PARAMETERS_PATH)
        if not isinstance(parameters, Mapping):
            self.report("G001", PARAMETERS_PATH, "a map of parameters is missing")
            return None
        numbers: dict[str, Fraction] = {}
        problems_before = self.problem_count
        for name, value in parameters.items():
            number = _parse_number(value)
            if number is not None:
                numbers[name] = number
            elif value is not None:
                self.report_type(f"{PARAMETERS_PATH}.{name}", "a number", value)
        if self.problem_count > problems_before:
            return None
        variant = lookup(self._entry, "deployment.dp_variant.variant_name")
        variant = variant or lookup(self._entry, "deployment.dp_flavor.name")
        loss = _select_parameters(str(variant or "").lower(), numbers)
        if loss is None:
            names = ", ".join(f"`{name}`" for name in numbers) or "no parameters"
            message = f"{names} under `{shorten(variant or 'no variant')}` state no supported loss"
            self.report("G002", PARAMETERS_PATH, message)
        return loss


def _select_parameters(variant: str, numbers: Mapping[str, Fraction]) -> dict[str, Any] | None:
    """Return the parameters that state a loss, or None.

    An ε together with a δ states a loss under every variant, including none.
    """
    if variant not in _VARIANT_PARAMETERS and variant:
        return None
    candidates = [_VARIANT_PARAMETERS[variant]] if variant else [("rho",), ("mu",)]
    for names in (*candidates, ("epsilon", "delta")):
        if not all(name in numbers for name in names):
            continue
        if "epsilon" in names:
            return {name: numbers[name] for name in ("epsilon", "delta") if name in numbers}
        # With an ε, a δ beside ρ belongs to the converted ε. Without, it is a δ that ρ lacks.
        has_separate_delta = bool(numbers.get("delta")) and "epsilon" not in numbers
        return None if has_separate_delta else {name: numbers[name] for name in names}
    return None


def _parse_number(value: object) -> Fraction | None:
    """Return an exact number, or None; δ may be a text such as `1e-10`."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return Fraction(value)
    return value if isinstance(value, Fraction) else None
