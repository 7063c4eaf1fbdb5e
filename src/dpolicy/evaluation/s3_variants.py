"""Variants of scenario S3: the same requests with coarser blocks or other labels.

The paper leaves both open. As run, a cohort does not separate all months: it has one block for the
past, four single months and one block for the future, so a request for an early month is charged
to the whole past. The share of requests that read data with a time is one half in the text and in
the public generator; three quarters come closer to the published values (docs/evaluation.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from dpolicy.allocation.simulation import Arrival
from dpolicy.allocation.unlocking import CohortRotation
from dpolicy.balances.partition_space import ALL_TIME
from dpolicy.evaluation.workload import Workload, latest_month, month_days
from dpolicy.releases.regions import Box, Interval, region_from_boxes

#: Number of single months of a cohort, from the month in which it joins.
SINGLE_MONTHS = 4

STATIC, TIMED = ["a0"], ["a0", "a1"]


def charge_coarse_blocks(
    workload: Workload, arrivals: Sequence[Arrival], rotation: CohortRotation
) -> list[Arrival]:
    """Charge requests of S3 to the coarse blocks of each cohort instead of single months."""
    changed = []
    for request, arrival in zip(workload.requests, arrivals, strict=True):
        boxes = list(
            _coarse_boxes(
                request["ranges"], request["month"], rotation.active_cohorts(arrival.round)
            )
        )
        (mechanism,) = arrival.mechanisms
        charged = replace(mechanism, region=region_from_boxes(boxes))
        changed.append(replace(arrival, mechanisms=(charged,)))
    return changed


def _coarse_boxes(ranges: Sequence[Sequence[int]], month: int, cohorts: Interval) -> Iterator[Box]:
    """Yield boxes of slots × cohorts × days, the order of the axes."""
    for cohort in range(max(0, cohorts[0]), cohorts[1]):
        for low, high in ranges:
            yield (low, high + 1), (cohort, cohort + 1), coarse_block(cohort, month)


def coarse_block(cohort: int, month: int) -> Interval:
    """Return the days of the block of a cohort that contains a month."""
    first = latest_month(cohort)
    if month < first:
        return ALL_TIME[0], _first_day(first)
    if month >= first + SINGLE_MONTHS:
        return _first_day(first + SINGLE_MONTHS), ALL_TIME[1]
    return _first_day(month), _first_day(month + 1)


def _first_day(month: int) -> int:
    return month_days(month).intervals[0][0] or ALL_TIME[0]


def with_timed_share(workload: Workload, share: float, seed: int = 0) -> Workload:
    """Change labels at random, so that this share of requests reads data that has a time."""
    rng = Random(seed)
    requests = workload.requests
    timed = sum(request["attributes"] == TIMED for request in requests) / len(requests)
    add_probability = (share - timed) / (1 - timed) if share > timed else 0.0
    drop_probability = 1 - share / timed if share < timed else 0.0

    def relabel(attributes: Sequence[str]) -> list[str]:
        if attributes == TIMED:
            return STATIC if rng.random() < drop_probability else TIMED
        return TIMED if rng.random() < add_probability else STATIC

    relabelled = ({**request, "attributes": relabel(request["attributes"])} for request in requests)
    return replace(workload, requests=tuple(relabelled))
