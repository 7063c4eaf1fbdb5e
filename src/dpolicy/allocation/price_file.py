"""A market ↔ a file that carries its prices from one round on a ledger to the next.

Rules stand there by name and unit. Prices that were paid under another policy say nothing about
this one, so the file of another policy is an empty market.
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
    """The market of a file, or an empty one if there is none for this policy."""
    market = CarriedPrices.empty(len(build_partition_space(policy).box))
    if not file.exists():
        return market
    try:
        said = json.loads(file.read_text("utf-8"))
        if said["format"] != FORMAT:
            raise OperationRejected(f"{file} was written by another version")
        if said["policy"] != policy.digest:
            return market
        return _market(said, policy, market)
    except (ArithmeticError, ValueError, KeyError, TypeError) as error:
        raise OperationRejected(f"{file} is not a list of prices: {error}") from None


def _market(
    document: dict[str, Any], policy: CompiledPolicy, empty: CarriedPrices
) -> CarriedPrices:
    rules = policy.cumulative.rules
    numbers = {(rule.name, rule.unit): number for number, rule in enumerate(rules)}
    lines = document["prices"]
    axes = empty.blocks.shape[1]
    prices = np.array([line["price"] for line in lines], np.float64)
    ages = np.array([line["age"] for line in lines], np.int64)
    if not (np.isfinite(prices) & (prices >= 0) & (ages >= 0)).all():
        raise ValueError("a price or an age is no amount")
    return CarriedPrices(
        np.array([numbers[line["rule"], line["unit"]] for line in lines], np.intp),
        np.array([line["at"] for line in lines], np.int64).reshape(len(lines), axes),
        prices,
        ages,
        int(document["rounds"]),
    )


def save_prices(file: Path, policy: CompiledPolicy, market: CarriedPrices) -> None:
    """Write a market, whole or not at all."""
    rules = policy.cumulative.rules
    columns = market.rules.tolist(), market.blocks.tolist(), market.prices.tolist()
    lines = [
        {"rule": rules[rule].name, "unit": rules[rule].unit, "at": at, "price": price, "age": age}
        for rule, at, price, age in zip(*columns, market.ages.tolist(), strict=True)
    ]
    said = {"format": FORMAT, "policy": policy.digest, "rounds": market.rounds, "prices": lines}
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n", "utf-8")
    new.replace(file)
