"""Three brokers on a ZooKeeper, of which two end: the last one serves groups from its log and refuses commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.wire import ask

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

GROUP = "g"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "offsets.commit.timeout.ms": "1000",
    # A suspended broker stays in sync for longer than a commit waits.
    "replica.lag.time.max.ms": "60000",
    "zookeeper.session.timeout.ms": "10000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GregorCluster]:
    try:
        with GregorCluster(tmp_path, overrides=SETTINGS) as cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


class Member:
    """A client's requests to one broker of the cluster."""

    def __init__(self, cluster: GregorCluster, broker_id: int) -> None:
        self._port = cluster.brokers[broker_id].port

    def commit(self, offset: int) -> ErrorCode:
        of_partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=GROUP_METADATA_TOPIC, partitions=[of_partition])
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
        return ErrorCode(ask(self._port, request, 7).topics[0].partitions[0].error_code)

    def committed(self) -> int | ErrorCode:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=GROUP_METADATA_TOPIC, partition_indexes=[0])
        response = ask(self._port, OffsetFetchRequest(group_id=GROUP, topics=[topic]), 5)
        offset: int = response.topics[0].partitions[0].committed_offset if response.topics else -1
        return ErrorCode(response.error_code) if response.error_code else offset

    def has(self, offset: int) -> bool:
        found = self.committed()
        return not isinstance(found, ErrorCode) and found == offset

    def coordinator_is_known(self) -> bool:
        return bool(ask(self._port, FindCoordinatorRequest(key=GROUP), 1).error_code == ErrorCode.NONE)

    def groups(self) -> list[tuple[str, ErrorCode, str]]:
        """Return each listed group and its description."""
        listed = [group.group_id for group in ask(self._port, ListGroupsRequest(), 2).groups]
        described = ask(self._port, DescribeGroupsRequest(groups=listed), 3).groups
        return [(group.group_id, ErrorCode(group.error_code), group.group_state) for group in described]


def log_of(cluster: GregorCluster, broker_id: int) -> bytes:
    folder = cluster.brokers[broker_id].folder / "data" / f"{GROUP_METADATA_TOPIC}-0"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def test_the_last_broker_answers_what_groups_ask_and_takes_nothing_until_another_is_back(
    cluster: GregorCluster,
) -> None:
    until(Member(cluster, 0).coordinator_is_known, "the offsets topic is there")
    cluster.until_isr(GROUP_METADATA_TOPIC, [0, 1, 2])
    leader = cluster.until_led(GROUP_METADATA_TOPIC)
    last, asleep = (number for number in range(3) if number != leader)
    member = Member(cluster, leader)
    until(lambda: member.commit(5) is ErrorCode.NONE, "a commit while all are there")
    assert member.committed() == 5

    # A suspended replica that is in sync does not fetch: new records are on the other two only, above the high
    # watermark.
    cluster.suspend(asleep)
    assert member.commit(6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.committed() == 6  # in doubt, as after any election
    until(lambda: log_of(cluster, last) == log_of(cluster, leader), "the last one has what the leader has")
    cluster.kill(asleep)
    cluster.kill(leader)

    # Of the two that ended the leader may be missed first: the other one leads then, until it is missed, too.
    until(lambda: cluster.registered() == {last}, "the others' sessions are over")
    cluster.until_isr(GROUP_METADATA_TOPIC, [last])
    assert cluster.until_led(GROUP_METADATA_TOPIC) == last
    member = Member(cluster, last)
    until(lambda: member.has(6), "the last broker tells what was committed")
    assert member.commit(7) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.committed() == 6
    assert member.groups() == [(GROUP, ErrorCode.NONE, "Empty")]

    for broker_id in (leader, asleep):
        cluster.start(broker_id)
    cluster.until_isr(GROUP_METADATA_TOPIC, [0, 1, 2])
    until(lambda: member.commit(8) is ErrorCode.NONE, "commits are taken again")
    assert member.committed() == 8
