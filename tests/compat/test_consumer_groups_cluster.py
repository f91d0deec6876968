"""A group of the new protocol (KIP-848) with members of several clients, on three brokers; its coordinator is killed.

Java 4.3.1 and 4.4.0, and librdkafka.
"""

from __future__ import annotations

import pathlib
import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import Member
from tests.compat.records import WAIT_S, until
from tests.compat.test_consumer_groups import NEW, QUICK
from tests.compat.transaction_faults import GROUP_COORDINATOR, coordinator_of
from tests.compat.transaction_version import upgrade_feature
from tests.compat.verifiable import PATIENCE_S, VerifiableMember
from tests.support.gregor_cluster import GregorCluster

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

PARTITIONS = 6
RECORDS = 120
GROUP, TOPIC = "orders-group", "orders"
SETTINGS = {
    **QUICK,
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


class Polled:
    """A member of librdkafka that a thread polls, so that it is alive while the test waits for others."""

    def __init__(self, bootstrap: str) -> None:
        self.member = Member(bootstrap, GROUP, TOPIC, **NEW, **{"log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.member.poll()
        self.member.close()

    def __enter__(self) -> Polled:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join(WAIT_S)

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(TOPIC, number) for number in list(self.member.owned)}

    def read(self) -> Counter[tuple[str, int, int]]:
        messages = list(self.member.read)
        return Counter((TOPIC, message.partition() or 0, message.offset() or 0) for message in messages)


def write(bootstrap: str) -> None:
    # Its leader may move: without idempotence a record that is sent again may be there twice.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def test_killed_coordinator_loses_no_member(tmp_path: pathlib.Path) -> None:
    with GregorCluster(tmp_path / "cluster", overrides=SETTINGS) as cluster, ExitStack() as stack:
        bootstrap = cluster.bootstrap
        upgrade_feature(bootstrap, "group.version", 1)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(WAIT_S)
        java = [
            stack.enter_context(VerifiableMember(tmp_path, bootstrap, GROUP, TOPIC, release=release))
            for release in ("4.3.1", "4.4.0")
        ]
        native = stack.enter_context(Polled(bootstrap))
        members: list[VerifiableMember | Polled] = [*java, native]

        def until_shared(*counts: int) -> None:
            def shared() -> bool:
                owned = [member.owned for member in members]
                apart = len(set().union(*owned)) == sum(map(len, owned))
                return sorted(map(len, owned)) == sorted(counts) and apart

            until(shared, f"a division into {counts}, now {[member.owned for member in members]}", PATIENCE_S)

        def until_read(count: int) -> None:
            def everything() -> bool:
                return len(sum((member.read() for member in (*java, native)), Counter())) == count

            until(everything, f"{count} records", PATIENCE_S)

        until_shared(2, 2, 2)
        write(bootstrap)
        until_read(RECORDS)
        [coordinator] = coordinator_of(bootstrap, GROUP, GROUP_COORDINATOR)
        cluster.kill(coordinator)
        write(bootstrap)
        until_read(2 * RECORDS)
        until(
            lambda: coordinator_of(bootstrap, GROUP, GROUP_COORDINATOR) not in ([], [coordinator]),
            "the next coordinator",
            PATIENCE_S,
        )
        until_shared(2, 2, 2)
        # The next coordinator knows the members, and continues with the group: one leaves, one is killed.
        java[0].stop()
        members.remove(java[0])
        until_shared(3, 3)
        java[1].kill()
        members.remove(java[1])
        until_shared(PARTITIONS)
        cluster.start(coordinator)
        write(bootstrap)
        until_read(3 * RECORDS)
        assert native.member.errors == []
