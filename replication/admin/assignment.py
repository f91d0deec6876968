"""Assignment of replicas to brokers: as Kafka spreads them, with racks and without, and checks of given assignments."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from gregor.protocol.errors import ErrorCode, KafkaError

# Kafka's controller accepts as many in one request.
MAX_NEW_PARTITIONS = 10_000


def spread(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    racks: Mapping[int, str | None] | None = None,
    start_partition: int = 0,
    start_index: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of `partitions` partitions from `start_partition` on; `brokers` are sorted by id, `racks`
    given for all of them or for none.

    First replicas are assigned round robin from `start_index` (random if None, so that the first brokers do not lead
    everything). The others follow at a distance that grows by one with each full round: brokers share each other's load
    evenly, also that of a broker that fails. With racks the round alternates between racks, and a rack gets a second
    replica of a partition only when each has one. The figures are those of Kafka's AdminUtils for the same start.

    Raises KafkaError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION, UNKNOWN_SERVER_ERROR (some
    brokers have a rack and others none).
    """
    count = len(brokers)
    if partitions < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"at most {MAX_NEW_PARTITIONS} new partitions at a time")
    if replication_factor < 1:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {count}.",
        )
    rack_of = _racks(brokers, racks)
    if rack_of is not None:
        brokers = alternated(rack_of)
    first = random.randrange(count) if start_index is None else start_index
    distance = random.randrange(count) if start_index is None else start_index
    # Thousands of partitions have some dozens of different lists of replicas.
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    result = {}
    for partition in range(start_partition, start_partition + partitions):
        if partition > 0 and partition % count == 0:
            distance += 1
        lead = (first + partition) % count
        key = lead, distance % max(1, count - 1)
        replicas = known.get(key)
        if replicas is None:
            if rack_of is None:
                replicas = _replicas(brokers, replication_factor, lead, distance)
            else:
                replicas = _replicas_over_racks(brokers, replication_factor, lead, distance, rack_of)
            known[key] = replicas
        result[partition] = replicas
    return result


def _racks(brokers: Sequence[int], racks: Mapping[int, str | None] | None) -> dict[int, str] | None:
    """Return the rack of each broker, None where there are no racks."""
    known = {id_: rack for id_ in brokers if racks is not None and (rack := racks.get(id_)) is not None}
    if not known:
        return None
    if len(known) < len(brokers):
        lacking = [id_ for id_ in brokers if id_ not in known]
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Not all brokers have rack information for replica rack aware assignment: set broker.rack of {lacking}",
        )
    return known


def alternated(rack_of: Mapping[int, str]) -> list[int]:
    """Return the brokers with neighbours of other racks: the first of each rack, by the racks' names, then the second
    of each, and so on."""
    by_rack: dict[str, list[int]] = {}
    for id_ in sorted(rack_of):
        by_rack.setdefault(rack_of[id_], []).append(id_)
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [id_ for row in rows for id_ in row if id_ is not None]


def _other(lead: int, distance: int, nth: int, count: int) -> int:
    return (lead + 1 + (distance + nth) % (count - 1)) % count


def _replicas(brokers: Sequence[int], replication_factor: int, lead: int, distance: int) -> tuple[int, ...]:
    count = len(brokers)
    others = [_other(lead, distance, nth, count) for nth in range(replication_factor - 1)]
    return tuple(brokers[index] for index in (lead, *others))


def _replicas_over_racks(
    brokers: Sequence[int], replication_factor: int, lead: int, distance: int, rack_of: Mapping[int, str]
) -> tuple[int, ...]:
    count, racks = len(brokers), len(set(rack_of.values()))
    replicas = [brokers[lead]]
    used = {rack_of[brokers[lead]]}
    nth = 0
    while len(replicas) < replication_factor:
        broker = brokers[_other(lead, distance * racks, nth, count)]
        nth += 1
        if broker not in replicas and (rack_of[broker] not in used or len(used) == racks):
            replicas.append(broker)
            used.add(rack_of[broker])
    return tuple(replicas)


def check_manual(
    assignments: Mapping[int, Sequence[int]], brokers: Collection[int], *, start_partition: int = 0
) -> dict[int, tuple[int, ...]]:
    """Return the assignment by partition. Raises KafkaError INVALID_REPLICA_ASSIGNMENT if it is impossible."""

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
