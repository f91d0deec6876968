"""The same scripts of group and transaction requests to gregor and to Apache Kafka 4.3.1: both lists of answers.

They are about the offsets that transactions commit (TxnOffsetCommit in all versions, KIP-447, KIP-890), and about the
corners of classic groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AddOffsetsToTxnRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.support.kafka_peer import SINGLE_NODE, KafkaPeer
from tests.support.processes import BrokerProcess, free_port
from tests.support.wire import RawConnection

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

TOPIC = "orders"
VERSIONS = range(6)
"""Of TxnOffsetCommit."""
NEW_PROTOCOL_FROM = 5
MEMBERS_FROM = 3
MORE = """\
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
FINAL_S = 120.0
_PASSING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Side:
    """One of the two brokers. Each call is one request; it returns the parts of the answer that must be equal."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.wire = RawConnection(port)
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        answer = self.wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        assert answer.topics[0].error_code == 0
        for key_type in (0, 1):
            wanted = FindCoordinatorRequest(key="any", key_type=key_type)
            self.settled(lambda wanted=wanted: self.wire.ask(wanted, 3).error_code)  # type: ignore[misc]
        self.settled(lambda: self.fetch_error("any"))

    def settled(self, request: Callable[[], int]) -> ErrorCode:
        """Repeat a request until its error is not one that passes."""
        deadline = time.monotonic() + FINAL_S
        while (code := ErrorCode(request())) in _PASSING and time.monotonic() < deadline:
            time.sleep(0.02)
        return code

    # -- transactions

    def fetch_error(self, group: str) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return int(self.wire.ask(OffsetFetchRequest(group_id=group, topics=[topic]), 7).error_code)

    def fetch(self, group: str) -> list[Any]:
        """Partition 0 as it is and as a stable one, and all offsets of the group, stable."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        found = []
        for topics, stable in (([topic], False), ([topic], True), (None, True)):
            request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
            answer = self.wire.ask(request, 7)
            assert answer.error_code == 0
            found.append(
                sorted(
                    (one.name, part.partition_index, part.committed_offset, ErrorCode(part.error_code).name)
                    for one in answer.topics
                    for part in one.partitions
                )
            )
        return found

    def commit(
        self, group: str, offset: int, *sender: Any, version: int = 8, metadata: str = "", partition: int = 0
    ) -> str:
        """Commit without a transaction; the sender is a generation, a member id and an instance id."""
        generation, member_id, instance = sender or (-1, "", None)
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance if version >= 7 else None,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        answer = self.wire.ask(request, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    def delete_offset(self, group: str) -> Any:
        part = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=[part])
        answer = self.wire.ask(OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
        return ErrorCode(answer.error_code).name, [
            ErrorCode(part.error_code).name for topic in answer.topics for part in topic.partitions
        ]

    def delete_group(self, group: str) -> str:
        answer = self.wire.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        return ErrorCode(answer.results[0].error_code).name

    def described(self, group: str) -> list[Any]:
        found: list[Any] = []
        for version in range(7):
            (one,) = self.wire.ask(DescribeGroupsRequest(groups=[group]), version).groups
            found.append(
                (
                    (version, ErrorCode(one.error_code).name, one.error_message, one.group_state, one.protocol_type),
                    (one.protocol_data, [member.group_instance_id for member in one.members]),
                )
            )
        for version in range(6):
            answer = self.wire.ask(ListGroupsRequest(), version)
            found.append(
                [(one.protocol_type, one.group_state, one.group_type) for one in answer.groups if one.group_id == group]
            )
        return found

    def until_there(self, group: str) -> None:
        """Wait for a new group: Apache Kafka sends a member id before the group is in the log."""
        deadline = time.monotonic() + FINAL_S
        while self.wire.ask(DescribeGroupsRequest(groups=[group]), 0).groups[0].group_state == "Dead":
            assert time.monotonic() < deadline
            time.sleep(0.02)

    # -- members

    def join(self, group: str, member_id: str = "", instance: str | None = None, version: int = 7, **other: Any) -> Any:
        """Join, and wait for the answer."""
        return self.wire.ask(join_request(group, member_id, instance, **other), version)

    def begin_join(self, group: str, member_id: str = "", instance: str | None = None) -> RawConnection:
        """Join on a connection of its own, without waiting."""
        connection = RawConnection(self.port)
        connection.send(join_request(group, member_id, instance), 7)
        return connection

    def until_rebalance(self, group: str, member_id: str, generation: int, instance: str | None = None) -> str:
        """Wait until the member's heartbeat is answered with an error, and return that."""
        deadline = time.monotonic() + FINAL_S
        while (error := self.heartbeat(group, member_id, generation, instance)) == "NONE":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return error

    def sync(self, group: str, member_id: str, generation: int, instance: str | None = None) -> str:
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=[assignment],
        )
        return ErrorCode(self.wire.ask(request, 3).error_code).name

    def heartbeat(self, group: str, member_id: str, generation: int, instance: str | None = None) -> str:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.wire.ask(request, 3).error_code).name

    def leave(self, group: str, member_id: str, instance: str | None = None) -> Any:
        who = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        answer = self.wire.ask(LeaveGroupRequest(group_id=group, members=[who]), 3)
        return ErrorCode(answer.error_code).name, [ErrorCode(one.error_code).name for one in answer.members]

    def stable(self, group: str, instance: str | None = "i") -> str:
        """Make a group of one static member, in generation 1; return its member id."""
        joined = self.join(group, instance=instance)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert self.sync(group, joined.member_id, 1, instance) == "NONE"
        return str(joined.member_id)


class Producer:
    """A transactional producer by the protocol of a version of TxnOffsetCommit."""

    def __init__(self, side: Side, name: str, version: int) -> None:
        self.side = side
        self.name = name
        self.version = version
        self.producer_id = self.epoch = -1
        assert side.settled(self._begin) is ErrorCode.NONE

    def _begin(self) -> int:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self.side.wire.ask(request, 4)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add(self, group: str) -> str:
        """Add the group to the transaction, where the protocol needs it."""
        if self.version >= NEW_PROTOCOL_FROM:
            return "NONE"
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return self.side.settled(lambda: self.side.wire.ask(request, 3).error_code).name

    def commit(
        self, group: str, offset: int, *, partitions: tuple[tuple[str, int], ...] = ((TOPIC, 0),), **fields: Any
    ) -> list[Any]:
        """Commit an offset for all the partitions; the fields stand in for those of the producer."""
        metadata = fields.pop("metadata", "m")
        topics = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for name, index in partitions
        ]
        given = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "transactional_id": self.name, **fields}
        request = TxnOffsetCommitRequest(group_id=group, topics=topics, **given)
        found: dict[tuple[str, int], str] = {}

        def ask() -> int:
            answer = self.side.wire.ask(request, self.version)
            found.clear()
            for topic in answer.topics:
                for part in topic.partitions:
                    found[topic.name, part.partition_index] = ErrorCode(part.error_code).name
            return int(ErrorCode[found[partitions[0]]]) if partitions == ((TOPIC, 0),) else 0

        self.side.settled(ask)
        return sorted(found.items())

    def end(self, commit: bool) -> str:
        version = 5 if self.version >= NEW_PROTOCOL_FROM else 3

        def ask() -> int:
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            answer = self.side.wire.ask(request, version)
            if version >= 5 and not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return int(answer.error_code)

        return self.side.settled(ask).name

    def ended(self, group: str, commit: bool) -> list[Any]:
        """End the transaction; return the group's offsets once none is pending."""
        code = self.end(commit)
        deadline = time.monotonic() + FINAL_S
        while "UNSTABLE_OFFSET_COMMIT" in str(found := self.side.fetch(group)):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return [code, self.side.fetch(group)]


def join_request(group: str, member_id: str, instance: str | None, protocol: str = "range") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )


# -- scripts: each yields what both brokers must answer alike

Script = Iterator[Any]


def commit_and_abort(side: Side, version: int) -> Script:
    group = f"plain-{version}"
    producer = Producer(side, group, version)
    for offset, commit in ((5, True), (6, False), (7, True)):
        yield producer.add(group)
        yield producer.commit(group, offset)
        yield side.fetch(group)
        yield producer.ended(group, commit)
    yield side.described(group)


def plain_commits_beside_a_transaction(side: Side, version: int) -> Script:
    group = f"beside-{version}"
    producer = Producer(side, group, version)
    yield producer.add(group)
    yield producer.commit(group, 5)
    yield side.commit(group, 6)
    yield side.fetch(group)
    yield producer.ended(group, True)
    yield side.commit(group, 7)
    yield producer.add(group)
    yield producer.commit(group, 8)
    yield producer.ended(group, True)


def deletions(side: Side, version: int) -> Script:
    for number, delete in enumerate((side.delete_offset, side.delete_group)):
        for before in (False, True):
            group = f"deleted-{version}-{number}-{before}"
            producer = Producer(side, group, version)
            if before:
                yield side.commit(group, 4)
            yield producer.add(group)
            yield producer.commit(group, 5)
            yield side.described(group)
            yield delete(group)
            yield side.fetch(group)
            yield side.described(group)
            yield producer.ended(group, True)
            yield side.described(group)


def refusals(side: Side, version: int) -> Script:
    group = f"refused-{version}"
    producer = Producer(side, group, version)
    if version < NEW_PROTOCOL_FROM:
        yield producer.commit(group, 1)  # it was not added
    yield producer.add(group)
    yield producer.commit("", 2)
    yield producer.commit(group, 3, metadata="x" * 5000)
    yield producer.commit(group, 4, partitions=((TOPIC, 1), (TOPIC, 2), ("absent", 0)))
    yield producer.commit(group, 4, partitions=(("absent", 0),))
    yield side.fetch(group)
    yield producer.commit(group, 5, producer_epoch=producer.epoch + 1)
    yield producer.commit(group, 5, producer_id=producer.producer_id + 1_000_000)
    yield producer.commit(group, 5, transactional_id="nobody")
    yield producer.ended(group, True)
    late = Producer(side, group, version)
    yield late.add(group)
    yield late.commit(group, 6)
    yield producer.commit(group, 7)
    yield late.ended(group, True)


def members(side: Side, version: int) -> Script:
    group = f"members-{version}"
    member_id = side.stable(group)
    producer = Producer(side, group, version)
    yield producer.add(group)
    for generation, who, instance in senders(member_id):
        fields = {"generation_id": generation, "member_id": who, "group_instance_id": instance}
        yield generation, producer.commit(group, 5, **fields)
    second = side.begin_join(group, instance="k")
    yield side.until_rebalance(group, member_id, 1, "i")
    yield producer.commit(group, 6, generation_id=1, member_id=member_id, group_instance_id="i")
    rejoined = side.join(group, member_id, "i")
    second.receive()
    yield rejoined.error_code, rejoined.generation_id  # it completes the rebalance
    yield producer.commit(group, 7, generation_id=1, member_id=member_id, group_instance_id="i")
    yield producer.commit(group, 8, generation_id=2, member_id=member_id, group_instance_id="i")
    yield side.leave(group, "", "i"), side.leave(group, "", "k")
    yield producer.commit(group, 9, generation_id=2, member_id=member_id, group_instance_id="i")
    yield producer.commit(group, 9, generation_id=-1, member_id=member_id, group_instance_id="i")
    yield producer.commit(f"{group}-none", 9, generation_id=1, member_id=member_id)
    second.close()


def senders(member_id: str) -> list[tuple[int, str, str | None]]:
    """Generation, member id and instance id of a commit to a group whose member `i` is in generation 1."""
    return [
        (1, member_id, "i"),
        (1, member_id, None),
        (0, member_id, "i"),
        (-1, member_id, "i"),
        (1, "nobody", None),
        (1, "nobody", "i"),
        (1, "nobody", "j"),
        (1, "", None),
        (-1, "", None),
        (-1, "", "i"),
    ]


def plain_commits_of_members(side: Side, version: int) -> Script:
    group = f"plain-members-{version}"
    yield [side.commit(group, 5, *sender, version=version) for sender in senders("nobody")[:1]]
    member_id = side.stable(group)
    yield [side.commit(group, 5, *sender, version=version) for sender in senders(member_id)]
    second = side.begin_join(group, instance="k")
    yield side.until_rebalance(group, member_id, 1, "i")
    yield [side.commit(group, 6, *sender, version=version) for sender in senders(member_id)]
    side.join(group, member_id, "i")
    second.receive()
    yield [side.commit(group, 7, generation, member_id, "i", version=version) for generation in (1, 2)]
    yield side.leave(group, "", "i"), side.leave(group, "", "k")
    yield [side.commit(group, 8, *sender, version=version) for sender in senders(member_id)]
    yield side.commit(group, 9, version=version, metadata="x" * 5000), side.commit(group, 9, partition=7)
    yield side.fetch(group)
    second.close()


def dynamic_and_static(side: Side, version: int) -> Script:
    group = f"corners-{version}"
    named = side.join(group)
    yield ErrorCode(named.error_code).name
    joined = side.join(group, named.member_id)
    yield joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name
    yield side.described(group)
    yield side.sync(group, joined.member_id, 1)
    yield ErrorCode(side.join(group, joined.member_id, "s").error_code).name  # a dynamic member's id
    yield ErrorCode(side.join(group, "nobody").error_code).name
    yield ErrorCode(side.join(group, protocol="other").error_code).name
    yield side.heartbeat(group, joined.member_id, 1)
    yield side.heartbeat(group, joined.member_id, 1, "s")
    static = side.begin_join(group, instance="s")
    yield side.until_rebalance(group, joined.member_id, 1)
    again = side.join(group, joined.member_id)
    _, entered = static.receive()
    yield again.error_code, again.generation_id, entered.error_code, entered.generation_id
    replaced = side.begin_join(group, instance="s")  # while the assignment is awaited
    yield side.until_rebalance(group, entered.member_id, 2, "s")
    yield side.sync(group, entered.member_id, 2, "s")
    side.join(group, joined.member_id)
    replaced.receive()
    yield side.leave(group, entered.member_id, "s"), side.leave(group, "", "s"), side.leave(group, "nobody")
    yield side.leave(group, joined.member_id)
    yield side.described(group)
    yield side.delete_group(group)
    yield side.described(group)
    for connection in (static, replaced):
        connection.close()


def joins_of_every_version(side: Side, _version: int) -> Script:
    for version in range(10):
        group = f"join-{version}"
        joined = side.join(group, version=version)
        yield version, join_parts(joined)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            yield join_parts(side.join(group, joined.member_id, version=version))
        side.until_there(group)
        yield side.described(group)
        yield join_parts(side.join(group, "nobody", version=version))


def static_joins_of_every_version(side: Side, _version: int) -> Script:
    group = "static-joins"
    side.stable(group)
    for version in range(5, 10):
        joined = side.join(group, instance="i", version=version)
        yield version, join_parts(joined)
        yield side.heartbeat(group, joined.member_id, 1, "i"), side.sync(group, joined.member_id, 1, "i")
    yield join_parts(side.join(group, instance="i", protocol="other"))


def ids_that_were_handed_out(side: Side, _version: int) -> Script:
    group = "handed-out"
    member_id = side.join(group).member_id
    side.until_there(group)
    yield side.described(group)
    yield side.commit(group, 5), side.heartbeat(group, member_id, 0), side.sync(group, member_id, 0)
    yield side.leave(group, member_id), side.leave(group, member_id)
    yield side.delete_offset(group), side.delete_group(group), side.delete_group(group), side.delete_offset(group)


def groups_that_do_not_exist(side: Side, _version: int) -> Script:
    yield ErrorCode(side.join("").error_code).name
    for group in ("", "absent"):
        yield side.sync(group, "m", 1), side.heartbeat(group, "m", 1), side.leave(group, "m")
        yield side.delete_offset(group), side.delete_group(group), side.described(group)
    yield side.commit("", 3), side.fetch("")


def another_protocol_type(side: Side, _version: int) -> Script:
    group = "type"
    member_id = side.stable(group)
    request = join_request(group, "", None)
    request.protocol_type = "connect"
    yield join_parts(side.wire.ask(request, 7))
    yield side.leave(group, member_id, "i")
    yield join_parts(side.wire.ask(request, 3))
    yield side.described(group)
    yield side.delete_offset(group)


def join_parts(joined: Any) -> tuple[Any, ...]:
    leads = joined.leader == joined.member_id
    return (
        ErrorCode(joined.error_code).name,
        (joined.generation_id, joined.protocol_type, joined.protocol_name),
        (leads, joined.skip_assignment, len(joined.members)),
    )


EVERY_VERSION = (commit_and_abort, plain_commits_beside_a_transaction, deletions, refusals)
CASES = [
    *((script, version) for script in EVERY_VERSION for version in VERSIONS),
    *((members, version) for version in VERSIONS if version >= MEMBERS_FROM),
    *((plain_commits_of_members, version) for version in range(2, 10)),
    *(
        (script, 0)
        for script in (
            dynamic_and_static,
            joins_of_every_version,
            static_joins_of_every_version,
            ids_that_were_handed_out,
            groups_that_do_not_exist,
            another_protocol_type,
        )
    ),
]


@pytest.fixture(scope="module")
def gregor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    overrides = dict(line.split("=") for line in MORE.split())
    with BrokerProcess(tmp_path_factory.mktemp("gregor"), overrides) as broker:
        side = Side(broker.port)
        yield side
        side.wire.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    folder = tmp_path_factory.mktemp("kafka")
    port, controller = free_port(), free_port()
    file = folder / "server.properties"
    file.write_text(SINGLE_NODE.format(controller=controller, port=port, folder=folder) + MORE)
    with KafkaPeer(file, port):
        side = Side(port)
        yield side
        side.wire.close()


@pytest.mark.parametrize(("script", "version"), CASES)
def test_the_same_answers(gregor: Side, kafka: Side, script: Callable[[Side, int], Script], version: int) -> None:
    assert list(script(gregor, version)) == list(script(kafka, version))


def test_where_the_answers_differ(gregor: Side, kafka: Side) -> None:
    """Apache Kafka has a group rebalance when an id is given back that no member uses, fails where such an id is used
    with a name, and keeps an empty group of a join that it refused."""
    found = []
    for side in (gregor, kafka):
        member_id = side.stable("left")
        unused = side.join("left").member_id
        named = ErrorCode(side.join("left", unused, "z").error_code).name
        assert side.leave("left", unused) == ("NONE", ["NONE"])
        refused = join_request("refused", "", None)
        refused.protocols = []
        assert side.wire.ask(refused, 7).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if side is kafka:
            side.until_there("refused")
        found.append((named, side.heartbeat("left", member_id, 1, "i"), side.delete_group("refused")))
    assert found == [
        ("UNKNOWN_MEMBER_ID", "NONE", "GROUP_ID_NOT_FOUND"),
        ("UNKNOWN_SERVER_ERROR", "REBALANCE_IN_PROGRESS", "NONE"),
    ]
