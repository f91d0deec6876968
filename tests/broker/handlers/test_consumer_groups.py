"""The consumer group protocol (KIP-848) at the wire: ConsumerGroupHeartbeat, ConsumerGroupDescribe, and the requests
that both kinds of groups share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    UpdateFeaturesRequest,
)
from tests.broker.harness import Harness, running
from tests.support.loop_clock import clock_ahead

HEARTBEAT, DESCRIBE = 68, 69
VERSIONS = (0, 1)
QUICK = {
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_assignment_interval_ms": "0",
}


class Member:
    """A consumer, without fetches: it owns what it is assigned at once."""

    def __init__(self, harness: Harness, group: str, *topics: str, version: int = 1, **fields: Any) -> None:
        self.harness = harness
        self.group = group
        self.topics = topics
        self.version = version
        self.fields = fields
        self.member_id = "" if version == 0 else f"member-{id(self)}"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def send(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, **fields
        )
        response: ConsumerGroupHeartbeatResponse = self.harness.ask(request, self.version)
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.epoch = response.member_id, response.member_epoch
            if response.assignment is not None:
                self.owned = {one.topic_id: list(one.partitions) for one in response.assignment.topic_partitions}
        return response

    def join(self) -> ConsumerGroupHeartbeatResponse:
        """Find the coordinator, which makes the internal topic, and join."""
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.harness.until(lambda: self.harness.ask(find, 4).coordinators[0].error_code == ErrorCode.NONE)
        subscription: dict[str, Any] = {"subscribed_topic_names": list(self.topics)} if self.topics else {}
        return self.send(0, rebalance_timeout_ms=30_000, topic_partitions=[], **subscription, **self.fields)

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        make = ConsumerGroupHeartbeatRequest.TopicPartitions
        owned = [make(topic_id=topic_id, partitions=partitions) for topic_id, partitions in self.owned.items()]
        return self.send(self.epoch, topic_partitions=owned)

    def leave(self) -> ConsumerGroupHeartbeatResponse:
        return self.send(-1)


def settle(*members: Member) -> None:
    """Let the members reconcile until each has the epoch of the group."""
    (group,) = describe(members[0].harness, members[0].group)
    for _ in range(20):
        for member in members:
            assert member.beat().error_code == ErrorCode.NONE
        (group,) = describe(members[0].harness, members[0].group)
        if group.group_state == "Stable":
            return
    raise AssertionError(group)


def describe(
    harness: Harness, *groups: str, version: int = 1, **fields: Any
) -> list[ConsumerGroupDescribeResponse.DescribedGroup]:
    response: ConsumerGroupDescribeResponse = harness.ask(
        ConsumerGroupDescribeRequest(group_ids=list(groups), **fields), version
    )
    return response.groups


def advertised(harness: Harness) -> set[int]:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    return {one.api_key for one in harness.ask(request, 4).api_keys} & {HEARTBEAT, DESCRIBE}


def listed(harness: Harness, states: Sequence[str] = (), types: Sequence[str] = ()) -> dict[str, tuple[str, str, str]]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response = harness.ask(request, 5)
    assert response.error_code == ErrorCode.NONE
    return {one.group_id: (one.group_type, one.protocol_type, one.group_state) for one in response.groups}


def update_features(harness: Harness, level: int, kind: int) -> tuple[ErrorCode, str | None]:
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=kind)
    response = harness.ask(UpdateFeaturesRequest(feature_updates=[wanted], timeout_ms=5000), 2)
    return ErrorCode(response.error_code), response.error_message


def commit(member: Member, topic: str, offset: int, epoch: int | None = None, version: int = 9) -> ErrorCode:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=member.group,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch if epoch is None else epoch,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    response = member.harness.ask(request, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def committed(harness: Harness, group: str) -> Mapping[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = harness.ask(request, 9).groups
    return {topic.name: topic.partitions[0].committed_offset for topic in found.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_members_share_the_partitions_of_a_topic(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic, 4)
    first, second = (Member(harness, topic, topic, version=version) for _ in range(2))
    response = first.join()
    assert (response.error_code, response.heartbeat_interval_ms) == (ErrorCode.NONE, 5000)
    settle(first)
    assert first.owned == {topic_id: [0, 1, 2, 3]}
    assert second.join().error_code == ErrorCode.NONE
    settle(first, second)
    assert sorted(first.owned[topic_id] + second.owned[topic_id]) == [0, 1, 2, 3]
    assert len(first.owned[topic_id]) == 2
    assert first.leave().error_code == ErrorCode.NONE
    settle(second)
    assert second.owned == {topic_id: [0, 1, 2, 3]}


@pytest.mark.parametrize("version", VERSIONS)
def test_describe(harness: Harness, topic: str, version: int) -> None:
    topic_id = harness.create_topic(topic, 2)
    member = Member(harness, topic, topic, rack_id="a", instance_id="i")
    member.join()
    settle(member)
    (group,) = describe(harness, topic, version=version, include_authorized_operations=True)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch == member.epoch
    assert group.authorized_operations > 0
    (described,) = group.members
    assert (described.member_id, described.instance_id, described.rack_id) == (member.member_id, "i", "a")
    assert (described.client_id, described.client_host) == ("tests", "/127.0.0.1")
    assert described.member_type == (1 if version else -1)
    assert described.subscribed_topic_names == [topic]
    for assignment in (described.assignment, described.target_assignment):
        (part,) = assignment.topic_partitions
        assert (part.topic_id, part.topic_name, sorted(part.partitions)) == (topic_id, topic, [0, 1])
    (unknown,) = describe(harness, f"{topic}-other", version=version)
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.slow
def test_new_partitions_and_topics_reach_the_members(harness: Harness, topic: str) -> None:
    topic_id = harness.create_topic(topic, 1)
    by_name = Member(harness, f"{topic}-names", topic, f"{topic}-later")
    by_expression = Member(harness, f"{topic}-regex", subscribed_topic_regex=f"{topic}.*")
    for member in (by_name, by_expression):
        member.join()
        settle(member)
        harness.until(lambda one=member: one.beat().error_code == 0 and one.owned == {topic_id: [0]})
    later_id = harness.create_topic(f"{topic}-later", 2)
    for member in (by_name, by_expression):
        expected = {topic_id: [0], later_id: [0, 1]}
        harness.until(
            lambda member=member, expected=expected: member.beat().error_code == 0 and member.owned == expected
        )


def test_lists_and_deletions(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    member = Member(harness, topic, topic)
    member.join()
    settle(member)
    assert listed(harness, types=["consumer"])[topic] == ("consumer", "consumer", "Stable")
    assert topic not in listed(harness, types=["classic"])
    assert topic in listed(harness, states=["stable"])
    for version in range(7):
        (described,) = harness.ask(DescribeGroupsRequest(groups=[topic]), version).groups
        not_found = ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.NONE
        assert (described.error_code, described.group_state, described.members) == (not_found, "Dead", [])
    assert described.error_message == f"Group {topic} is not a classic group."
    request = DeleteGroupsRequest(groups_names=[topic])
    assert harness.ask(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert commit(member, topic, 7) == ErrorCode.NONE
    member.leave()
    assert listed(harness)[topic] == ("consumer", "consumer", "Empty")
    assert harness.ask(request, 2).results[0].error_code == ErrorCode.NONE
    assert topic not in listed(harness)
    assert committed(harness, topic) == {}


def test_offsets_are_fenced_by_the_member_epoch(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    member = Member(harness, topic, topic)
    member.join()
    settle(member)
    assert commit(member, topic, 5) == ErrorCode.NONE
    assert commit(member, topic, 6, epoch=member.epoch - 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(member, topic, 6, epoch=member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    stranger = Member(harness, topic, topic)
    assert commit(stranger, topic, 6, epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(harness, topic) == {topic: 5}


def test_settings_of_a_group_act_at_the_next_heartbeat(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    member = Member(harness, topic, topic)
    assert member.join().heartbeat_interval_ms == 5000
    alter = harness.broker.admin.settings.alter
    harness.run(alter("groups", topic, lambda _before: {"consumer.heartbeat.interval.ms": "6000"}))
    assert member.beat().heartbeat_interval_ms == 6000
    harness.run(alter("groups", topic, lambda _before: {}))
    assert member.beat().heartbeat_interval_ms == 5000


def test_settings_of_the_broker_act(tmp_path: Path) -> None:
    settings = {
        "group_consumer_assignors": "range",
        "group_consumer_max_size": "1",
        "group_consumer_min_session_timeout_ms": "100",
        "group_consumer_session_timeout_ms": "20000",
        "group_consumer_min_heartbeat_interval_ms": "50",
        "group_consumer_heartbeat_interval_ms": "200",
    }
    with running(tmp_path, **settings) as harness:
        harness.create_topic("t", 2)
        first, second = Member(harness, "g", "t"), Member(harness, "g", "t")
        assert first.join().heartbeat_interval_ms == 200
        assert second.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        other = Member(harness, "g", "t", server_assignor="uniform")
        assert other.join().error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        settle(first)
        assert describe(harness, "g")[0].assignor_name == "range"
        with clock_ahead(harness.loop, 20):
            harness.until(lambda: not describe(harness, "g")[0].members, timeout_s=20)  # less than by the default
            assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert second.join().error_code == ErrorCode.NONE


def test_groups_of_both_kinds_do_not_mix_where_migration_is_disabled(tmp_path: Path) -> None:
    with running(tmp_path, group_consumer_migration_policy="disabled") as harness:
        harness.create_topic("t")
        member = Member(harness, "g", "t")
        member.join()
        classic = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        assert harness.ask(classic, 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert harness.ask(HeartbeatRequest(group_id="g", member_id="m", generation_id=1), 4).error_code == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )


def test_group_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        topic_id = harness.create_topic("t", 2)
        member = Member(harness, "g", "t")
        member.join()
        settle(member)
        assert commit(member, "t", 3) == ErrorCode.NONE
    with running(tmp_path, **QUICK) as harness:
        member.harness = harness
        harness.until(lambda: member.beat().error_code == ErrorCode.NONE)
        settle(member)
        assert member.owned == {topic_id: [0, 1]}
        assert committed(harness, "g") == {"t": 3}


@pytest.mark.parametrize("settings", [{"group_coordinator_rebalance_protocols": "classic"}, {}])
def test_protocol_that_is_not_served(tmp_path: Path, settings: dict[str, str]) -> None:
    with running(tmp_path, **settings) as harness:
        if not settings:
            assert advertised(harness) == {HEARTBEAT, DESCRIBE}
            assert update_features(harness, 0, kind=2) == (ErrorCode.NONE, None)
        assert advertised(harness) == set()
        # A client that connected before still knows the APIs.
        harness.create_topic("t")
        assert Member(harness, "g", "t").join().error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [group.error_code for group in describe(harness, "g")] == [ErrorCode.UNSUPPORTED_VERSION]
        if not settings:
            assert update_features(harness, 1, kind=1) == (ErrorCode.NONE, None)
            assert advertised(harness) == {HEARTBEAT, DESCRIBE}
            assert Member(harness, "g", "t").join().error_code == ErrorCode.NONE


def test_downgrade_turns_groups_into_classic_ones_with_their_offsets(tmp_path: Path) -> None:
    with running(tmp_path, **QUICK) as harness:
        harness.create_topic("t")
        staying, left = Member(harness, "staying", "t"), Member(harness, "left", "t")
        for member in (staying, left):
            member.join()
            settle(member)
            assert commit(member, "t", 3) == ErrorCode.NONE
        left.leave()
        code, message = update_features(harness, 0, kind=2)
        assert code == ErrorCode.NON_EMPTY_GROUP
        assert message is not None and "group.version stays at 1" in message and "(staying)" in message
        assert staying.beat().error_code == ErrorCode.NONE
        assert update_features(harness, 0, kind=3) == (ErrorCode.NONE, None)
        assert staying.beat().error_code == ErrorCode.UNSUPPORTED_VERSION
        shown = {name: (kind, state) for name, (kind, _, state) in listed(harness).items()}
        assert shown == dict.fromkeys(("staying", "left"), ("classic", "Empty"))
        assert committed(harness, "staying") == committed(harness, "left") == {"t": 3}
    with running(tmp_path, **QUICK) as harness:
        harness.until(lambda: harness.ask(ListGroupsRequest(), 5).error_code == ErrorCode.NONE)
        assert {kind for kind, _, _ in listed(harness).values()} == {"classic"}
        assert committed(harness, "staying") == {"t": 3}
        assert update_features(harness, 1, kind=1) == (ErrorCode.NONE, None)
        again = Member(harness, "staying", "t")
        again.join()
        settle(again)
        assert listed(harness)["staying"][0] == "consumer"
        assert committed(harness, "staying") == {"t": 3}


def test_members_wait_until_the_broker_knows_the_topics(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    member = Member(harness, topic, topic)
    member.join()
    settle(member)
    harness.broker.metadata.expect_topics(True)
    assert member.beat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.broker.metadata.expect_topics(False)
    assert member.beat().error_code == ErrorCode.NONE
