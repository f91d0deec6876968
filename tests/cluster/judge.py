"""The invariants of a run, whatever its faults. Pure: a history and the final log in, sentences out.

The producers write with acks=all and idempotence, min.insync.replicas=2 of 3, and brokers are lost one at a time:
- an acknowledged record is in the log, at the offset that was acknowledged, if one was;
- no record is in the log twice, and those of one producer are in the order in which it sent them;
- the log contains only records that a producer sent;
- a group gets every record at least once, and nothing that is not in the log: a record that was read stays;
- a partition's next owner starts no lower than what was committed before, and at the end everything is committed.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tests.cluster.history import UNKNOWN, Group, History

Log = Mapping[int, Mapping[int, str]]
"""partition -> offset -> value, from the first offset to the high watermark."""
SHOWN = 5
ALIVE_MS = 1000


def judge(history: History, log: Log, committed: Mapping[str, Mapping[int, int]]) -> list[str]:
    """The rules that were broken, each with its first instances; empty when all is well.

    `committed` is group -> partition -> offset at the end, when all members had read everything.
    """
    found = [f"a producer could not go on: {reason}" for reason in history.fatal]
    found += rule("acknowledged and lost", _lost(history, log))
    found += rule("twice in the log", _doubled(log))
    found += rule("out of order", _disordered(log))
    found += rule("in the log, but nobody sent it", _invented(history, log))
    for name, group in history.groups.items():
        found += rule(f"{name}: two values at one offset", group.conflicts)
        found += rule(f"{name}: delivered, but not in the log", _dirty(group, log))
        found += rule(f"{name}: never delivered", _missed(group, log))
        found += rule(f"{name}: began below what was committed", _rewound(group))
        found += rule(f"{name}: not all is committed", _uncommitted(committed.get(name, {}), log))
    return found


def rule(name: str, instances: Iterable[str]) -> list[str]:
    """Return a sentence about the instances of a rule that was broken; nothing where there are none."""
    listed = list(instances)
    if not listed:
        return []
    more = f", and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return [f"{name}: {len(listed)} ({'; '.join(listed[:SHOWN])}{more})"]


def _number(value: str) -> tuple[int, int]:
    producer, _, sequence = value.partition(".")
    return int(producer), int(sequence)


def _lost(history: History, log: Log) -> Iterable[str]:
    anywhere = {partition: set(records.values()) for partition, records in log.items()}
    for ack in history.acks:
        if ack.offset == UNKNOWN:
            if ack.value not in anywhere.get(ack.partition, ()):
                yield f"{ack.value} somewhere in {ack.partition}"
            continue
        stored = log.get(ack.partition, {}).get(ack.offset)
        if stored != ack.value:
            yield f"{ack.value} at {ack.partition}@{ack.offset}, where there is {stored or 'nothing'}"


def _doubled(log: Log) -> Iterable[str]:
    for partition, records in log.items():
        seen: dict[str, int] = {}
        for offset, value in records.items():
            if seen.setdefault(value, offset) != offset:
                yield f"{value} at {partition}@{seen[value]} and {offset}"


def _disordered(log: Log) -> Iterable[str]:
    for partition, records in log.items():
        latest: dict[int, int] = {}
        for offset in sorted(records):
            producer, sequence = _number(records[offset])
            if sequence < latest.get(producer, -1):
                yield f"{records[offset]} at {partition}@{offset} behind {producer}.{latest[producer]}"
            latest[producer] = max(sequence, latest.get(producer, -1))


def _invented(history: History, log: Log) -> Iterable[str]:
    """A producer that ended in peace was answered, or gave up, about each of its records."""
    known = {ack.value for ack in history.acks} | history.failed.keys()
    for partition, records in log.items():
        yield from (f"{value} at {partition}@{offset}" for offset, value in records.items() if value not in known)


def _dirty(group: Group, log: Log) -> Iterable[str]:
    for partition, records in group.delivered.items():
        stored = log.get(partition, {})
        for offset, value in records.items():
            if stored.get(offset) != value:
                yield f"{value} at {partition}@{offset}, where there is {stored.get(offset) or 'nothing'}"


def _missed(group: Group, log: Log) -> Iterable[str]:
    for partition, records in log.items():
        delivered = group.delivered.get(partition, {})
        yield from (f"{value} at {partition}@{offset}" for offset, value in records.items() if offset not in delivered)


def _rewound(group: Group) -> Iterable[str]:
    commits: dict[int, list[tuple[int, int]]] = {}
    for commit in group.commits:
        commits.setdefault(commit.partition, []).append((commit.at_ms, commit.offset))
    highest = {partition: _highest(sorted(found)) for partition, found in commits.items()}
    for start in group.starts:
        times, offsets = highest.get(start.partition, ([], []))
        before = bisect.bisect_left(times, start.assigned_ms)
        if before and start.offset < offsets[before - 1]:
            yield (
                f"{start.partition}@{start.offset}, assigned at {start.assigned_ms}, "
                f"when {offsets[before - 1]} was committed"
            )


def _highest(commits: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    times, offsets, top = [], [], 0
    for at_ms, offset in commits:
        top = max(top, offset)
        times.append(at_ms)
        offsets.append(top)
    return times, offsets


def _uncommitted(committed: Mapping[int, int], log: Log) -> Iterable[str]:
    for partition, records in log.items():
        end = max(records) + 1 if records else 0
        if records and committed.get(partition) != end:
            yield f"partition {partition} at {committed.get(partition)} of {end}"


def different_replicas(logs: Mapping[str, Mapping[int, bytes]]) -> list[str]:
    """Partitions whose files differ between brokers; broker -> partition -> all segments' bytes, in order."""
    found = []
    for partition in sorted({partition for folder in logs.values() for partition in folder}):
        contents = {name: folder.get(partition, b"") for name, folder in logs.items()}
        if len(set(contents.values())) > 1:
            sizes = ", ".join(f"{name}: {len(content)}" for name, content in contents.items())
            found.append(f"replicas of partition {partition} differ (bytes: {sizes})")
    return found


def longest_gaps_ms(times_ms: Sequence[int], begun_ms: Sequence[int]) -> list[int]:
    """For each fault, by when it began, the longest time without an event that it caused. Both are sorted.

    A gap is the fault's that begins in it, unless the last event before lies ALIVE_MS or more back: then the one before
    that was not over.
    """
    longest = [0] * len(begun_ms)
    for earlier, later in itertools.pairwise(times_ms):
        following = bisect.bisect_left(begun_ms, earlier)
        caused = following < len(begun_ms) and begun_ms[following] < min(later, earlier + ALIVE_MS)
        fault = following if caused else following - 1
        if fault >= 0:
            longest[fault] = max(longest[fault], later - earlier)
    return longest
