"""Transactions of foreign clients: a consume-transform-produce loop, killed, fenced and timed out."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import OffsetFetchRequest
from tests.compat.copiers.launch import KINDS, phases_of
from tests.compat.exactly_once import WAIT_S, Copier, Work, is_commit, read_all
from tests.compat.records import until
from tests.support.wire import ask

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow, pytest.mark.by_day(2, parameter="kind")]

INPUTS = 60
"""Records for each input partition: enough that some transactions are aborted."""
LONGEST_UNDER_WAY_S = 0.02
"""How long an end of a transaction has been under way, at most, when its client is killed."""
SHORT_MS = 10_000
"""The timeout of a transaction that is to last longer; the one before it, a JVM's first, must not."""
KILLED = ("java", "java-3.9", "java-0.11", "confluent", "aiokafka", "sarama", "franz", "kafkajs")
NEW_PROTOCOL = ("java",)
"""These use the protocol of transaction.version 2 where it is in force."""
FENCED = ("java", "java-3.9", "java-0.11", "confluent", "aiokafka", "sarama", "franz", "kafkajs")
WAITS_FOR_SESSION = ("kafkajs",)
"""These neither read partitions of their own choice nor are static members: the next process waits for the end of the
session of the one before. It gets its producer id, which fences, not before its first transaction. To save time they
are killed or fenced in the last phases only."""
LAST_PHASES = ("produced", "ending")

Unique = Callable[[str], str]
NewWork = Callable[..., Work]


@pytest.fixture
def new_work(bootstrap: str, unique: Unique, tmp_path: pathlib.Path) -> NewWork:
    return lambda **counts: Work(tmp_path, bootstrap, unique("txn"), **counts)


def stable_offset(admin: AdminClient, topic: str, partition: int, level: IsolationLevel) -> int:
    part = TopicPartition(topic, partition)
    answer = admin.list_offsets({part: OffsetSpec.latest()}, isolation_level=level)
    return int(answer[part].result(WAIT_S).offset)


@pytest.mark.parametrize("kind", KINDS)
def test_each_input_is_there_once(new_work: NewWork, kind: str) -> None:
    with new_work() as work:
        work.copier(kind, range(work.inputs))
        work.feed(INPUTS)
        aborted = work.finish()
    assert aborted, "no transaction was aborted"


def test_copiers_of_all_kinds_at_once(new_work: NewWork) -> None:
    """Each with partitions of its own, into the same output."""
    kinds = ("java", "java-3.9", "confluent", "aiokafka", "sarama")
    with new_work(inputs=len(kinds)) as work:
        for partition, kind in enumerate(kinds):
            work.copier(kind, [partition])
        work.feed(INPUTS)
        aborted = work.finish()
    assert aborted, "no transaction was aborted"


def feed_until_committed(work: Work, copier: Copier) -> None:
    """Feed until the member, which gets its partitions at some time, commits a transaction."""

    def committed() -> bool:
        work.feed(1)
        time.sleep(0.05)
        if any(map(is_commit, copier.lines())):
            return True
        copier.restart_stuck()
        return False

    until(committed, f"a transaction of {copier.name}", WAIT_S)


@pytest.mark.parametrize("kind", ["java", "confluent"])
def test_members_of_a_group_come_and_go(new_work: NewWork, kind: str) -> None:
    """A member that was put out of the group does not commit offsets (KIP-447)."""
    with new_work(inputs=4) as work:
        first = work.copier(kind, timeout_ms=10_000)
        feed_until_committed(work, first)
        second = work.copier(kind)
        feed_until_committed(work, second)
        first.kill()
        third = work.copier(kind)
        feed_until_committed(work, third)
        work.until_copied()
        for copier in (second, third):
            copier.finish()
        work.judge()


@pytest.mark.parametrize("kind", KILLED)
def test_killed_copier_loses_nothing(new_work: NewWork, kind: str) -> None:
    """In every phase; the next process with its transactional id ends the transaction."""
    dice = random.Random(kind)
    with new_work() as work:
        copier = work.copier(kind, range(work.inputs), aborts=0)
        for phase in LAST_PHASES if kind in WAITS_FOR_SESSION else phases_of(kind):
            copier.hold(phase)
            work.feed(INPUTS // 3)
            copier.until_held(phase)
            if phase == "ending":
                copier.resume()
                time.sleep(dice.uniform(0, LONGEST_UNDER_WAY_S))
            copier.kill()
            copier.start()
        work.finish()


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        (kind, phase)
        for kind in FENCED
        for phase in ("begun", "produced", "ending")
        if kind not in WAITS_FOR_SESSION or phase == LAST_PHASES[-1]
    ],
)
def test_zombie_is_fenced(new_work: NewWork, kind: str, phase: str) -> None:
    """A copier that was held while another began with its transactional id neither commits nor adds records."""
    with new_work(inputs=1) as work:
        zombie = work.copier(kind, [0], aborts=0)
        zombie.hold(phase)
        work.feed(INPUTS)
        attempt = zombie.until_held(phase)
        successor = work.copier(kind, [0], aborts=0, id=zombie.name)
        successor.until_printed("produced " if kind in WAITS_FOR_SESSION else "ready")
        zombie.resume()
        zombie.until_fenced()
        work.until_copied()
        successor.finish()
        hidden = work.judge()
        assert all(copy.attempt != attempt for copy in work.oracle.seen)
    assert all(copy.attempt == attempt for copy in hidden)


@pytest.mark.parametrize("kind", ["java", "java-3.9", "confluent"])
def test_transaction_that_lasts_too_long_is_aborted(new_work: NewWork, admin: AdminClient, kind: str) -> None:
    """The coordinator aborts it and fences the producer; the records behind it become visible."""
    with new_work(inputs=2, outputs=1) as work:
        slow = work.copier(kind, [0], aborts=0, timeout_ms=SHORT_MS)
        work.feed(1)
        # The first transaction of a JVM may last as long as the timeout.
        slow.until_committed(0)
        slow.hold("offsets")
        work.feed(INPUTS)
        attempt = slow.until_held("offsets")
        end = stable_offset(admin, work.output, 0, IsolationLevel.READ_UNCOMMITTED)
        work.copier("confluent", [1], aborts=0).until_committed()

        def moved() -> bool:
            return stable_offset(admin, work.output, 0, IsolationLevel.READ_COMMITTED) > end

        until(moved, "the end of the slow transaction", WAIT_S)
        slow.resume()
        if kind in NEW_PROTOCOL:
            # The error of a late commit is INVALID_TXN_STATE; the copier continues with a new producer.
            slow.until_printed("restarted ")
        else:
            slow.until_fenced()
            slow.start()
        work.finish()
        assert all(copy.attempt != attempt for copy in work.oracle.seen)


@pytest.mark.parametrize("kind", ["java", "java-3.9", "confluent"])
def test_open_transaction_holds_the_last_stable_offset(
    bootstrap: str, new_work: NewWork, admin: AdminClient, kind: str
) -> None:
    """Neither its records are visible, nor those behind it; its offsets are pending."""
    port = int(bootstrap.rpartition(":")[2])
    with new_work(inputs=2, outputs=1) as work:
        copier = work.copier(kind, [0], aborts=0)
        copier.hold("offsets")
        work.feed(INPUTS)
        copier.until_held("offsets")
        other = work.copier("confluent", [1], aborts=0)
        other.until_committed()
        uncommitted = read_all(bootstrap, work.output, 1, "read_uncommitted")
        first = min(copy.offset for copy in uncommitted if copy.source.startswith("0."))
        assert stable_offset(admin, work.output, 0, IsolationLevel.READ_COMMITTED) == first
        assert stable_offset(admin, work.output, 0, IsolationLevel.READ_UNCOMMITTED) > first
        assert all(copy.offset < first for copy in read_all(bootstrap, work.output, 1))
        parts = [OffsetFetchRequest.OffsetFetchRequestTopic(name=work.input, partition_indexes=[0])]
        for stable, code in ((True, ErrorCode.UNSTABLE_OFFSET_COMMIT), (False, ErrorCode.NONE)):
            request = OffsetFetchRequest(group_id=work.group, topics=parts, require_stable=stable)
            [found] = ask(port, request, 7).topics[0].partitions
            assert (found.error_code, found.committed_offset) == (code, -1)
        copier.resume()
        work.finish()


def test_read_committed_ends_at_the_last_stable_offset(bootstrap: str, new_work: NewWork) -> None:
    """A consumer that seeks to the end goes to the last stable offset."""
    with new_work(inputs=1, outputs=1) as work:
        copier = work.copier("confluent", [0], aborts=0)
        copier.hold("produced")
        work.feed(INPUTS)
        attempt = copier.until_held("produced")
        [size] = [int(one.split()[1]) for one in copier.phases(attempt) if one.startswith("produced ")]
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0}
        for level, expected in (("read_committed", 0), ("read_uncommitted", size)):
            consumer = Consumer({**settings, "isolation.level": level})
            found = consumer.get_watermark_offsets(TopicPartition(work.output, 0), WAIT_S)
            consumer.close()
            assert found == (0, expected), level
        copier.resume()
        work.finish()
