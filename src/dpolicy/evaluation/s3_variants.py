"""Readings of scenario S3 that the paper leaves open → the same requests, labelled or charged so.

As run, a cohort does not keep every month apart: it has one block for the past, four single months
and one for the future, so a request for an early month is charged to all of the past. The share of
requests that read data with a time is a half in the text and in the public generator; three
quarters come closer to the published bars (docs/evaluation.md).
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

#: Single months that a cohort keeps, from the one in which it joins.
SINGLE_MONTHS = 4

STATIC, TIMED = ["a0"], ["a0", "a1"]


def charge_coarse_blocks(
    workload: Workload, arrivals: Sequence[Arrival], rotation: CohortRotation
) -> list[Arrival]:
    """Requests of S3, charged to all of the past or the future of a cohort where that is coarse."""
    found = []
    for said, arrival in zip(workload.requests, arrivals, strict=True):
        boxes = list(_boxes(said["ranges"], said["month"], rotation.active_cohorts(arrival.round)))
        (mechanism,) = arrival.mechanisms
        charged = replace(mechanism, region=region_from_boxes(boxes))
        found.append(replace(arrival, mechanisms=(charged,)))
    return found


def _boxes(ranges: Sequence[Sequence[int]], month: int, cohorts: Interval) -> Iterator[Box]:
    """Slots × cohorts × days, in the order of the partitions."""
    for cohort in range(max(0, cohorts[0]), cohorts[1]):
        for low, high in ranges:
            yield (low, high + 1), (cohort, cohort + 1), coarse_block(cohort, month)


def coarse_block(cohort: int, month: int) -> Interval:
    """The days that a cohort keeps together with a month."""
    first = latest_month(cohort)
    if month < first:
        return ALL_TIME[0], _start(first)
    if month >= first + SINGLE_MONTHS:
        return _start(first + SINGLE_MONTHS), ALL_TIME[1]
    return _start(month), _start(month + 1)


def _start(month: int) -> int:
    return month_days(month).intervals[0][0] or ALL_TIME[0]


def with_timed_share(workload: Workload, share: float, seed: int = 0) -> Workload:
    """S3 with such a share of requests on data that has a time; labels are changed at random."""
    rng = Random(seed)
    timed = sum(said["attributes"] == TIMED for said in workload.requests) / len(workload.requests)
    more = (share - timed) / (1 - timed) if share > timed else 0.0
    fewer = 1 - share / timed if share < timed else 0.0

    def labelled(attributes: Sequence[str]) -> list[str]:
        if attributes == TIMED:
            return STATIC if rng.random() < fewer else TIMED
        return TIMED if rng.random() < more else STATIC

    requests = ({**said, "attributes": labelled(said["attributes"])} for said in workload.requests)
    return replace(workload, requests=tuple(requests))
