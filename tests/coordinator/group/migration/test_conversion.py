"""Conversion of a group between the classic and the consumer protocol, as records."""

from collections.abc import Iterable
from typing import Any

import pytest

from gregor.coordinator.group.consumer.reconciliation import MemberState
from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.member import Member
from gregor.coordinator.group.migration.conversion import (
    Conversion,
    decode_assignment,
    decode_subscription,
    downgrade,
    downgrade_error,
    encode_assignment,
    only_classic_without,
    upgrade,
    version_of,
)
from gregor.coordinator.group.records import decode_record, encode_record
from gregor.coordinator.ports import TopicInfo
from gregor.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

ORDERS, TABLE = b"o" * 16, b"t" * 16
INT_MAX = 2**31 - 1


class Topics:
    """Two topics."""

    def __init__(self) -> None:
        self.infos = {"orders": TopicInfo(ORDERS, 4), "table": TopicInfo(TABLE, 2)}

    def names(self) -> list[str]:
        return list(self.infos)

    def find(self, name: str) -> TopicInfo | None:
        return self.infos.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name, info in self.infos.items() if info.topic_id == topic_id), None)


def metadata(*topics: str, version: int = 1, **fields: Any) -> bytes:
    """The data of a protocol in a JoinGroup request of a consumer."""
    return version.to_bytes(2, "big") + ConsumerProtocolSubscription(topics=list(topics), **fields).encode(version)


def given(partitions: dict[str, list[int]], user_data: bytes | None = None) -> bytes:
    """The assignment that a leader sends."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
            for name, indexes in partitions.items()
        ],
        user_data=user_data,
    )
    return b"\0\1" + message.encode(1)


def member(name: str, assignment: bytes = b"", *, instance: str | None = None, **protocols: bytes) -> Member:
    return Member(
        name,
        instance,
        "client",
        "/host",
        rebalance_timeout_ms=9_000,
        session_timeout_ms=7_000,
        protocols=protocols or {"range": metadata("orders")},
        group_id="g",
        assignment=assignment,
    )


def classic_group(members: Iterable[Member], *, generation: int = 5, protocol: str | None = "range") -> Membership:
    membership = Membership("g")
    for one in members:
        membership.add(one, "consumer")
    membership.generation, membership.protocol = generation, protocol
    return membership


def upgraded(membership: Membership, policy: str = "bidirectional", max_size: int = INT_MAX) -> Conversion:
    return upgrade(membership, policy, max_size, Topics(), lambda names: len(names))


def keys(conversion: list[Any]) -> list[str]:
    return [
        type(record.key).__name__.removesuffix("Key").removeprefix("ConsumerGroup") + ("" if record.value else "-")
        for record in conversion
    ]


def test_members_keep_generation_and_assignment() -> None:
    first = member("a", given({"orders": [0, 1], "gone": [0]}))
    second = member(
        "b", given({"orders": [2, 3]}), instance="i", range=metadata("orders", "table", version=3, rack_id="r")
    )
    group, records = upgraded(classic_group([first, second]))
    assert keys(records) == [
        "GroupMetadata-",
        *["MemberMetadata"] * 2,
        "Metadata",
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        *["CurrentMemberAssignment"] * 2,
    ]
    for record in records:
        assert decode_record(*encode_record(record)) == record
    assert (group.epoch, group.target_epoch, group.metadata_hash, group.state) == (5, 5, 2, "Stable")
    assert group.static_members == {"i": "b"}
    assert group.target == {"a": {ORDERS: {0, 1}}, "b": {ORDERS: {2, 3}}}
    one = group.members["b"]
    assert one.uses_classic_protocol and one.subscription.classic is not None
    assert one.subscription.classic.session_timeout_ms == 7_000
    assert [protocol.name for protocol in one.subscription.classic.supported_protocols] == ["range"]
    assert (one.subscription.rack_id, one.subscription.topics) == ("r", {"orders", "table"})
    assert (one.subscription.rebalance_timeout_ms, one.subscription.client_host) == (9_000, "/host")
    assert one.assignment.assigned == {ORDERS: {2: 5, 3: 5}}
    assert (one.epoch, one.assignment.previous_epoch, one.assignment.state) == (5, 5, MemberState.STABLE)


def test_a_group_before_its_first_generation_can_be_converted() -> None:
    """The protocol is not chosen yet: what a member offers first counts."""
    joining = classic_group(
        [member("a", sticky=metadata("table"), range=metadata("orders"))], generation=0, protocol=None
    )
    group, _ = upgraded(joining)
    assert group.members["a"].subscription.topics == {"table"}
    assert (group.epoch, group.target) == (0, {"a": {}})


@pytest.mark.parametrize(
    ("membership", "policy", "max_size", "text"),
    [
        (classic_group([member("a")]), "downgrade", 9, "online upgrade is disabled."),
        (classic_group([member("a")]), "disabled", 9, "online upgrade is disabled."),
        (
            classic_group([member("a"), member("b")]),
            "upgrade",
            1,
            "the group size exceeds the consumer group maximum size.",
        ),
        (classic_group([member("a", range=b"\0")]), "upgrade", 9, "the embedded consumer protocol is malformed."),
        (classic_group([member("a", b"\xff\xff")]), "upgrade", 9, "the embedded consumer protocol is malformed."),
        (classic_group([member("a", given({}, b"state"))]), "upgrade", 9, "an unsupported custom assignor is in use. "),
    ],
)
def test_what_is_not_converted_is_not_found(membership: Membership, policy: str, max_size: int, text: str) -> None:
    with pytest.raises(KafkaError) as raised:
        upgraded(membership, policy, max_size)
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert raised.value.message.startswith(f"Cannot upgrade classic group g to consumer group because {text}")


def test_a_group_of_workers_is_not_converted() -> None:
    membership = Membership("g")
    membership.add(member("a"), "connect")
    with pytest.raises(KafkaError, match="does not use the consumer embedded protocol"):
        upgraded(membership)


def test_it_becomes_what_it_was() -> None:
    first = member("a", given({"orders": [0, 1]}), sticky=metadata("orders", version=3), range=metadata("orders"))
    second = member("b", given({"orders": [2]}), instance="i", range=metadata("orders", version=0))
    group, _ = upgraded(classic_group([first, second]))
    group.epoch = 8
    records, members = downgrade(group, (), Topics(), 1_234)
    assert keys(records) == [
        *["CurrentMemberAssignment-"] * 2,
        *["TargetAssignmentMember-"] * 2,
        "TargetAssignmentMetadata-",
        *["MemberMetadata-"] * 2,
        "PartitionMetadata-",
        "Metadata-",
        "GroupMetadata",
    ]
    value = records[-1].value
    assert (value.protocol_type, value.protocol, value.generation) == ("consumer", "range", 8)
    assert (value.leader, value.current_state_timestamp) == ("a", 1_234)
    assert [
        (one.member_id, one.group_instance_id, one.session_timeout, one.rebalance_timeout) for one in value.members
    ] == [
        ("a", None, 7_000, 9_000),
        ("b", "i", 7_000, 9_000),
    ]
    assert [version_of(one.assignment) for one in value.members] == [1, 0]
    decoded = decode_assignment(value.members[0].assignment).assigned_partitions
    assert [(topic.topic, topic.partitions) for topic in decoded] == [("orders", [0, 1])]
    assert [list(one.protocols) for one in members] == [["sticky", "range"], ["range"]]


def test_who_leaves_is_not_in_the_classic_group() -> None:
    group, _ = upgraded(classic_group([member("a", given({"orders": [0]})), member("b")]))
    records, _ = downgrade(group, {"a"}, Topics(), 0)
    assert [one.member_id for one in records[-1].value.members] == ["b"]
    assert sum(record.value is None and getattr(record.key, "member_id", "") == "a" for record in records) == 3


def test_a_member_that_takes_the_place_of_a_static_one_has_its_assignment() -> None:
    group, _ = upgraded(classic_group([member("a", given({"orders": [0]}), instance="i")]))
    old = group.members["a"]
    new = type(old)("g", "b", old.subscription, old.assignment)
    records, _ = downgrade(group, {"a"}, Topics(), 0, new)
    (one,) = records[-1].value.members
    assert (one.member_id, one.group_instance_id) == ("b", "i")
    assert decode_assignment(one.assignment).assigned_partitions[0].partitions == [0]


def test_a_downgrade_needs_classic_members_and_room() -> None:
    group, _ = upgraded(classic_group([member("a"), member("b")]))
    assert only_classic_without(group, ())
    assert not only_classic_without(group, {"a", "b"})
    group.members["a"].subscription = group.members["a"].subscription._replace(classic=None)
    assert not only_classic_without(group, ())
    assert only_classic_without(group, {"a"})
    assert downgrade_error(group, {"a"}, "bidirectional", 1) is None
    assert downgrade_error(group, {"a"}, "downgrade", 0) == "its 1 members are more than group.max.size"
    assert downgrade_error(group, {"a"}, "upgrade", 9) == "the online downgrade is disabled"


def test_data_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = (99).to_bytes(2, "big") + metadata("orders", version=3, rack_id="r")[2:] + b"more"
    decoded = decode_subscription(newer)
    assert (decoded.topics, decoded.rack_id) == (["orders"], "r")
    assert version_of(encode_assignment({}, newer, Topics())) == 3
    for data in (b"", b"\0", b"\0\1", b"\0\1\0\0\0\5"):
        with pytest.raises(MalformedMessage):
            decode_subscription(data)
