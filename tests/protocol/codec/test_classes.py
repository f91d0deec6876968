"""gregor.protocol.codec.classes: what the generated message classes are like to use."""

from __future__ import annotations

import copy
import pickle

import pytest

from gregor.protocol.codec.classes import build_class
from gregor.protocol.messages import FetchResponse, HeartbeatRequest, MetadataRequest, ProduceResponse, schema

PartitionData = FetchResponse.PartitionData
EpochEndOffset = FetchResponse.EpochEndOffset


def test_arguments_are_keywords_with_kafkas_defaults() -> None:
    partition = PartitionData(error_code=3)
    assert (partition.error_code, partition.last_stable_offset, partition.records) == (3, -1, None)
    assert MetadataRequest().allow_auto_topic_creation is True
    with pytest.raises(TypeError):
        PartitionData(3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        PartitionData(no_such_field=3)  # type: ignore[call-arg]


def test_slots_only() -> None:
    with pytest.raises(AttributeError):
        HeartbeatRequest().no_such_field = 1  # type: ignore[attr-defined]


def test_lists_are_not_shared_between_messages() -> None:
    FetchResponse().responses.append(FetchResponse.FetchableTopicResponse())
    assert FetchResponse().responses == []


def test_explicit_null_stays() -> None:
    assert MetadataRequest(topics=None).topics is None
    assert MetadataRequest().topics == []


class TestSharedDefault:
    """A struct left out is one object for all messages: it must not change, and equal an ordinary one."""

    def test_is_shared_and_refuses_changes(self) -> None:
        assert PartitionData().diverging_epoch is PartitionData().diverging_epoch
        with pytest.raises(AttributeError, match=r"FetchResponse\.EpochEndOffset is the shared default: assign a new"):
            PartitionData().diverging_epoch.epoch = 3
        assert PartitionData().diverging_epoch.epoch == -1

    def test_equals_an_ordinary_one_both_ways(self) -> None:
        shared = PartitionData().diverging_epoch
        assert shared == EpochEndOffset()
        assert EpochEndOffset() == shared
        assert shared != EpochEndOffset(epoch=3)
        assert isinstance(shared, EpochEndOffset)
        assert repr(shared) == "FetchResponse.EpochEndOffset(epoch=-1, end_offset=-1)"

    def test_copies_are_ordinary(self) -> None:
        for copied in (copy.deepcopy(PartitionData()), pickle.loads(pickle.dumps(PartitionData()))):
            assert copied == PartitionData()
            copied.diverging_epoch.epoch = 3
        assert PartitionData().diverging_epoch.epoch == -1


def test_equality_is_by_class_and_values() -> None:
    assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    other_struct: object = FetchResponse.SnapshotId()
    assert other_struct != EpochEndOffset()
    assert PartitionData(records=memoryview(b"r")) == PartitionData(records=b"r")
    with pytest.raises(TypeError):
        hash(HeartbeatRequest())


def test_repr_names_the_struct_inside_its_message() -> None:
    leader = ProduceResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    assert repr(leader) == "ProduceResponse.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)"
    assert repr(HeartbeatRequest(group_id="g")).startswith("HeartbeatRequest(group_id='g', generation_id=0, ")


def test_constructors_are_compiled_with_the_first_object() -> None:
    message = build_class(schema("FetchResponse"))
    waiting = message.__init__
    assert message.PartitionData.__init__ is waiting
    assert message.PartitionData(partition_index=4).partition_index == 4
    assert waiting not in (message.__init__, message.PartitionData.__init__)
    # A decoded struct shares the defaults of constructed ones, whichever of both is made first.
    other = build_class(schema("FetchResponse"))
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=1)])
    decoded, _ = other.decode(FetchResponse(responses=[topic]).encode(11), 11)
    assert decoded.responses[0].partitions[0].diverging_epoch is other.PartitionData().diverging_epoch
