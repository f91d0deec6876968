"""Offsets of consumer groups: who may commit, fetch and delete them, and when they expire."""

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import OffsetDeleteRequest, OffsetFetchRequest
from tests.coordinator.group.consumer.context import ConsumerContext


def fetch_error(context: ConsumerContext, member_id: str | None, epoch: int) -> ErrorCode:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=topics
    )
    response = context.run(context.coordinator.offset_fetch(OffsetFetchRequest(groups=[wanted]), 9))
    return ErrorCode(response.groups[0].error_code)


def delete_error(context: ConsumerContext, topic: str = "t") -> ErrorCode:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    response = context.run(context.coordinator.delete_offsets(OffsetDeleteRequest(group_id="g", topics=topics)))
    return ErrorCode(response.error_code or response.topics[0].partitions[0].error_code)


def test_member_commits_with_its_epoch() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        assert context.commit_error(member_id="m1", generation=2) is ErrorCode.NONE
        assert context.fetch_offset() == 5


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("m1", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_commit_of_another_sender_is_refused(member_id: str, epoch: int, version: int, error: ErrorCode) -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        assert context.commit_error(member_id=member_id, generation=epoch, version=version) is error


def test_older_epoch_commits_only_what_the_member_owned_then() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1")
        second = context.consumer("m2")
        context.settle_group(first, second)
        assert (first.epoch, second.epoch) == (3, 3)
        kept, moved = first.owned["t"][0], second.owned["t"][0]
        assert context.commit_error(member_id="m1", generation=2, partition=kept) is ErrorCode.NONE
        assert context.commit_error(member_id="m1", generation=2, partition=moved) is ErrorCode.STALE_MEMBER_EPOCH
        assert context.commit_error(member_id="m2", generation=2, partition=moved) is ErrorCode.STALE_MEMBER_EPOCH
        assert (
            context.commit_error(member_id="m1", generation=2, partition=kept, topic="u")
            is ErrorCode.STALE_MEMBER_EPOCH
        )


def test_partition_that_is_to_be_revoked_can_still_be_committed() -> None:
    with ConsumerContext({"t": 2}) as context:
        first = context.consumer("m1")
        context.consumer("m2")
        first.beat()
        assert len(first.owned["t"]) == 1
        for partition in (0, 1):
            assert context.commit_error(member_id="m1", generation=2, partition=partition) is ErrorCode.NONE


def test_empty_group_accepts_commits_without_member() -> None:
    with ConsumerContext() as context:
        member = context.consumer("m1")
        assert context.commit_error() is ErrorCode.UNKNOWN_MEMBER_ID
        member.leave()
        assert context.commit_error() is ErrorCode.NONE


def test_producers_commit_with_the_epoch_of_a_member() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        assert context.transactional_error(member_id="m1", generation=2) is ErrorCode.NONE
        assert context.transactional_error(member_id="m1", generation=3) is ErrorCode.ILLEGAL_GENERATION
        # From v6 on producers know the error of the protocol (KIP-1319).
        assert context.transactional_error(member_id="m1", generation=3, version=6) is ErrorCode.STALE_MEMBER_EPOCH
        assert context.transactional_error(member_id="m2", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.transactional_error() is ErrorCode.NONE, "a producer without group metadata"


def test_offsets_are_shown_to_members_with_their_epoch_and_to_admins() -> None:
    with ConsumerContext() as context:
        context.consumer("m1")
        assert fetch_error(context, "m1", 2) is ErrorCode.NONE
        assert fetch_error(context, "m1", 1) is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch_error(context, "m2", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert fetch_error(context, None, -1) is ErrorCode.NONE


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    with ConsumerContext() as context:
        context.commit_error()
        member = context.consumer("m1")
        assert delete_error(context) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert delete_error(context, "u") is ErrorCode.NONE
        member.leave()
        assert delete_error(context) is ErrorCode.NONE
        assert context.fetch_offset() == -1


def test_offsets_of_topics_without_subscription_expire_and_those_of_others_stay() -> None:
    day_ms = 24 * 60 * 60 * 1000
    with ConsumerContext(retention_ms=day_ms, retention_check_interval_ms=day_ms // 4) as context:
        member = context.consumer("m1")
        context.commit_error(member_id="m1", generation=2)
        context.commit_error(member_id="m1", generation=2, topic="u")
        for _ in range(30):
            for _ in range(5):
                member.beat()
                context.sleep(30_000)
            context.configs.config = context.configs.config._replace(session_timeout_ms=2 * 3_600_000)
            member.beat()
            context.sleep(3_600_000)
        member.beat()
        assert context.fetch_offset() == 5
        assert context.fetch_offset("u") == -1


def test_empty_group_whose_offsets_expired_is_removed() -> None:
    day_ms = 24 * 60 * 60 * 1000
    with ConsumerContext(retention_ms=day_ms, retention_check_interval_ms=day_ms // 4) as context:
        member = context.consumer("m1")
        context.commit_error(member_id="m1", generation=2)
        member.leave()
        context.sleep(day_ms // 2)
        assert context.fetch_offset() == 5
        context.sleep(day_ms)
        assert context.shard.groups == {}
        assert context.hard_state() == context.replayed_state() == {}


def test_offsets_outlive_the_change_of_an_empty_group_to_the_other_kind() -> None:
    with ConsumerContext() as context:
        context.commit_error()
        member = context.consumer("m1")
        assert context.fetch_offset() == 5
        member.leave()
        [classic] = context.stable_group()
        assert context.shard.consumers.find("g") is None
        assert context.fetch_offset() == 5
        context.leave(classic)
        member.epoch = 0
        member.beat()
        assert member.error is ErrorCode.NONE
        assert context.fetch_offset() == 5
        context.restart()
        assert context.found().epoch == 2
        assert context.fetch_offset() == 5
