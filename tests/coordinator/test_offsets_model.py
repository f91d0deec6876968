"""Commits, transactions, deletions, reloads and compaction in random order, against a list of what was done.

The oracle keeps every record in the order of the log: a plain commit, a commit in a transaction, or a tombstone. A
record of a transaction counts from its commit marker on. Of the records of a partition that count, the last one is the
group's position; pending is what was committed in a transaction that is still open and not deleted since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, OffsetDeleteRequest
from tests.coordinator.compaction import compact
from tests.coordinator.context import Context

UNSTABLE = -1000 - ErrorCode.UNSTABLE_OFFSET_COMMIT
GROUPS = ("g", "h")
TOPICS = ("t", "u")
PRODUCERS = (7, 8)
NOT_PENDING = -1

Key = tuple[str, str]
"""Group and topic; all commits are for partition 0."""


class Written(NamedTuple):
    """A record; offset None is a tombstone."""

    key: Key
    offset: int | None
    transaction: int | None


@dataclass
class Oracle:
    """All that was written, and how transactions ended. `open` has the number of each producer's transaction."""

    records: list[Written] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    open: dict[int, int] = field(default_factory=dict)
    transactions: int = 0

    def transaction_of(self, producer_id: int) -> int:
        if producer_id not in self.open:
            self.transactions += 1
            self.open[producer_id] = self.transactions
        return self.open[producer_id]

    def end(self, producer_id: int, commit: bool) -> None:
        number = self.open.pop(producer_id, None)
        if number is not None:
            self.ended.add(number)
            if commit:
                self.committed.add(number)

    def position(self, key: Key) -> int:
        for record in reversed(self.records):
            if record.key == key and (record.transaction is None or record.transaction in self.committed):
                return -1 if record.offset is None else record.offset
        return -1

    def pending(self, key: Key, producer_id: int) -> int:
        number = self.open.get(producer_id)
        for record in reversed(self.records):
            if record.key == key and record.offset is None:
                break
            if record.key == key and record.transaction is not None and record.transaction == number:
                assert record.offset is not None
                return record.offset
        return NOT_PENDING

    def is_unstable(self, key: Key) -> bool:
        return any(self.pending(key, producer_id) != NOT_PENDING for producer_id in PRODUCERS)

    def delete(self, key: Key) -> None:
        self.records.append(Written(key, None, None))


class Play:
    """Carries steps out on a coordinator and on the oracle."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.oracle = Oracle()
        self.next_offset = 0

    def _next(self) -> int:
        self.next_offset += 1
        return self.next_offset

    def commit(self, group: str, topic: str, _producer_id: int) -> None:
        offset = self._next()
        if not self.context.commit_error(offset=offset, group=group, topic=topic):
            self.oracle.records.append(Written((group, topic), offset, None))

    def commit_in_transaction(self, group: str, topic: str, producer_id: int) -> None:
        offset = self._next()
        if not self.context.transactional_error(offset, group=group, topic=topic, producer_id=producer_id):
            number = self.oracle.transaction_of(producer_id)
            self.oracle.records.append(Written((group, topic), offset, number))

    def end_committed(self, _group: str, _topic: str, producer_id: int) -> None:
        self._end(producer_id, commit=True)

    def end_aborted(self, _group: str, _topic: str, producer_id: int) -> None:
        self._end(producer_id, commit=False)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        if self.context.end_transaction(commit=commit, producer_id=producer_id).error is None:
            self.oracle.end(producer_id, commit)

    def delete_offset(self, group: str, topic: str, _producer_id: int) -> None:
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        wanted = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        request = OffsetDeleteRequest(group_id=group, topics=[wanted])
        if not self.context.run(self.context.coordinator.delete_offsets(request)).error_code:
            self.oracle.delete((group, topic))

    def delete_group(self, group: str, _topic: str, _producer_id: int) -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        (result,) = self.context.run(self.context.coordinator.delete_groups(request, 2)).results
        if not result.error_code:
            for topic in TOPICS:
                self.oracle.delete((group, topic))

    def delete_topic(self, _group: str, topic: str, _producer_id: int) -> None:
        before = self.context.log.appends
        failing = bool(self.context.log.failures)
        self.context.coordinator.on_topics_deleted([topic])
        self.context.settle()
        assert self.context.log.appends <= before + 1
        if not failing or self.context.log.failures:
            for group in GROUPS:
                self.oracle.delete((group, topic))

    def fail_next(self, _group: str, _topic: str, _producer_id: int) -> None:
        if not self.context.log.failures:
            self.context.fail()

    def reload(self, _group: str, _topic: str, _producer_id: int) -> None:
        self.context.log.failures.clear()
        self.context.restart()

    def compact_and_reload(self, group: str, topic: str, producer_id: int) -> None:
        log = self.context.log
        log.batches[0] = compact(log.batches.get(0, []))
        self.reload(group, topic, producer_id)

    def check(self) -> None:
        for group in GROUPS:
            for topic in TOPICS:
                key = group, topic
                position = self.oracle.position(key)
                assert self.context.fetch_offset(topic, group=group) == position
                stable = UNSTABLE if self.oracle.is_unstable(key) else position
                assert self.context.fetch_offset(topic, group=group, stable=True) == stable
        expected = {
            (*key, 0): pending
            for group in GROUPS
            for topic in TOPICS
            if (pending := self._pending(key := (group, topic)))
        }
        assert self.context.pending() == expected

    def _pending(self, key: Key) -> dict[int, int]:
        pending = {producer_id: self.oracle.pending(key, producer_id) for producer_id in PRODUCERS}
        return {producer_id: offset for producer_id, offset in pending.items() if offset != NOT_PENDING}


VERBS = [
    "commit",
    "commit",
    "commit_in_transaction",
    "commit_in_transaction",
    "commit_in_transaction",
    "end_committed",
    "end_committed",
    "end_aborted",
    "delete_offset",
    "delete_group",
    "delete_topic",
    "fail_next",
    "reload",
    "compact_and_reload",
]
steps = st.lists(
    st.tuples(st.sampled_from(VERBS), st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.sampled_from(PRODUCERS)),
    max_size=40,
)


def play(plan: list[tuple[str, str, str, int]]) -> None:
    with Context() as context:
        scene = Play(context)
        for verb, group, topic, producer_id in plan:
            getattr(scene, verb)(group, topic, producer_id)
            scene.check()
        context.log.failures.clear()
        context.restart()
        scene.check()


@settings(max_examples=40, deadline=None)
@given(steps)
def test_offsets_are_those_of_a_list_of_all_that_was_done(plan: list[tuple[str, str, str, int]]) -> None:
    play(plan)


def test_the_list_agrees_with_some_cases_by_hand() -> None:
    oracle = Oracle()
    key = "g", "t"
    number = oracle.transaction_of(7)
    oracle.records.append(Written(key, 1, number))
    assert (oracle.position(key), oracle.pending(key, 7), oracle.pending(key, 8)) == (-1, 1, NOT_PENDING)
    oracle.records.append(Written(key, 2, None))
    assert oracle.position(key) == 2
    oracle.end(7, commit=True)
    assert (oracle.position(key), oracle.is_unstable(key)) == (2, False)
    oracle.records.append(Written(key, 3, oracle.transaction_of(7)))
    oracle.delete(key)
    oracle.end(7, commit=True)
    assert oracle.position(key) == -1
