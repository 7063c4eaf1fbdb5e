"""Price file: carries the prices of one round on a ledger to the next.

The file names rules by name and unit. Prices of another policy do not apply to the active one, so a
file of another policy is read as empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dpolicy.allocation.carried_prices import CarriedPrices
from dpolicy.balances.partition_space import build_partition_space
from dpolicy.errors import OperationRejected
from dpolicy.rules.compiler import CompiledPolicy

FORMAT = 1


def load_prices(file: Path, policy: CompiledPolicy) -> CarriedPrices:
    """Read a price file; return empty prices if it does not exist or is of another policy.

    Raise `OperationRejected` if the file is not a valid price file.
    """
    empty = CarriedPrices.empty(len(build_partition_space(policy).box))
    if not file.exists():
        return empty
    try:
        document = json.loads(file.read_text("utf-8"))
        if document["format"] != FORMAT:
            raise OperationRejected(f"{file} was written by another version")
        if document["policy"] != policy.digest:
            return empty
        return _parse_prices(document, policy, empty.blocks.shape[1])
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OperationRejected(f"{file} is not a valid price file: {error}") from None


def _parse_prices(document: dict[str, Any], policy: CompiledPolicy, axes: int) -> CarriedPrices:
    rules = policy.cumulative.rules
    numbers = {(rule.name, rule.unit): number for number, rule in enumerate(rules)}
    entries = document["prices"]
    prices = np.array([entry["price"] for entry in entries], np.float64)
    ages = np.array([entry["age"] for entry in entries], np.int64)
    if not (np.isfinite(prices) & (prices >= 0) & (ages >= 0)).all():
        raise ValueError("prices and ages must be finite and not negative")
    return CarriedPrices(
        np.array([numbers[entry["rule"], entry["unit"]] for entry in entries], np.intp),
        np.array([entry["at"] for entry in entries], np.int64).reshape(len(entries), axes),
        prices,
        ages,
        int(document["rounds"]),
    )


def save_prices(file: Path, policy: CompiledPolicy, prices: CarriedPrices) -> None:
    """Write a price file; it is replaced atomically."""
    rules = policy.cumulative.rules
    columns = prices.rules.tolist(), prices.blocks.tolist(), prices.prices.tolist()
    entries = [
        {
            "rule": rules[rule].name,
            "unit": rules[rule].unit,
            "at": block,
            "price": price,
            "age": age,
        }
        for rule, block, price, age in zip(*columns, prices.ages.tolist(), strict=True)
    ]
    document = {
        "format": FORMAT,
        "policy": policy.digest,
        "rounds": prices.rounds,
        "prices": entries,
    }
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    new.replace(file)
