"""Which broker gets which replica: Kafka's spread without racks, and the checks of assignments made by hand."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from protocol.errors import ErrorCode, KafkaError

# What Kafka's controller takes in one request.
MAX_NEW_PARTITIONS = 10_000


def spread(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    start_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Replicas of partitions `start_partition` and on, `brokers` sorted by id.

    First replicas go round robin from `start_index` (random if None, so that the first brokers do not lead everything).
    The others follow at a distance that grows by one with each full round: brokers share each other's load evenly,
    also that of one which fails.

    Raises KafkaError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION.
    """
    count = len(brokers)
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the number of partitions must be at least 1, not {partitions}")
    if partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"at most {MAX_NEW_PARTITIONS} new partitions at a time")
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor must be at least 1, not {replication_factor}"
        )
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers; there are {count}",
        )
    first = random.randrange(count) if start_index is None else start_index
    numbers = range(start_partition, start_partition + partitions)
    if replication_factor == 1:
        alone = [(broker,) for broker in brokers]
        return {partition: alone[(first + partition) % count] for partition in numbers}
    distance = random.randrange(count) if start_index is None else start_index
    result = {}
    for partition in numbers:
        if partition > 0 and partition % count == 0:
            distance += 1
        lead = (first + partition) % count
        others = [(lead + 1 + (distance + n) % (count - 1)) % count for n in range(replication_factor - 1)]
        result[partition] = tuple(brokers[index] for index in (lead, *others))
    return result


def check_manual(
    assignments: Mapping[int, Sequence[int]], brokers: Collection[int], *, start_partition: int = 0
) -> dict[int, tuple[int, ...]]:
    """The assignment, by partition. Raises KafkaError INVALID_REPLICA_ASSIGNMENT for anything that cannot be done."""

    def refuse(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    end = start_partition + len(assignments)
    if sorted(assignments) != list(range(start_partition, end)):
        raise refuse(f"partitions must be {start_partition} to {end - 1} without gaps, are {sorted(assignments)}")
    factors = {len(replicas) for replicas in assignments.values()}
    if len(factors) > 1:
        raise refuse("all partitions must have the same number of replicas")
    for partition, replicas in assignments.items():
        if not replicas:
            raise refuse(f"partition {partition} has no replica")
        if len(set(replicas)) < len(replicas):
            raise refuse(f"partition {partition} has two replicas on one broker: {list(replicas)}")
        unknown = sorted(set(replicas) - set(brokers))
        if unknown:
            raise refuse(f"partition {partition} names brokers that are not there: {unknown}")
    return {partition: tuple(assignments[partition]) for partition in sorted(assignments)}
