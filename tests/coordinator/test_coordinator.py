"""The facade: the partition of a group, and the errors of a broker that is not its coordinator."""

import asyncio

import pytest

from gregor.coordinator.group.config import GroupConfig
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DeleteGroupsRequest, ListGroupsRequest
from tests.coordinator.context import Context


class Answers:
    """One request of each kind, and the error that came back."""

    def __init__(self, context: Context, group: str = "g") -> None:
        self._context = context
        self._group = group

    def join(self) -> ErrorCode:
        return self._context.join(group=self._group).error

    def sync(self) -> ErrorCode:
        return self._context.sync("m", 1, group=self._group).error

    def heartbeat(self) -> ErrorCode:
        return self._context.heartbeat("m", 1, group=self._group)

    def leave(self) -> ErrorCode:
        return self._context.leave("m", group=self._group).error

    def commit(self) -> ErrorCode:
        return self._context.commit_error(group=self._group)

    def fetch(self) -> ErrorCode:
        return ErrorCode(max(0, -1000 - self._context.fetch_offset(group=self._group)))

    def describe(self) -> ErrorCode:
        return ErrorCode(self._context.describe(self._group, 5).error_code)

    def delete(self) -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=[self._group])
        return ErrorCode(self._context.run(self._context.coordinator.delete_groups(request, 2)).results[0].error_code)

    def list(self) -> ErrorCode:
        return ErrorCode(self._context.run(self._context.coordinator.list_groups(ListGroupsRequest(), 5)).error_code)

    def all(self, *names: str) -> dict[str, ErrorCode]:
        every = ("join", "sync", "heartbeat", "leave", "commit", "fetch", "describe", "delete", "list")
        return {name: getattr(self, name)() for name in names or every}


def test_while_it_loads_clients_are_told_to_try_again() -> None:
    with Context() as context:
        context.stable_group(session_ms=10_000)
        context.resign()
        context.log.load_gate = asyncio.Event()
        context.start_load()
        answers = Answers(context).all()
        # A heartbeat succeeds, so that the client continues unchanged.
        assert answers.pop("heartbeat") is ErrorCode.NONE
        assert set(answers.values()) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        context.log.load_gate.set()
        context.sleep(1)
        assert context.state() is GroupState.STABLE


def test_other_partitions_belong_to_other_coordinators() -> None:
    with Context() as context:
        context.resign()
        answers = Answers(context).all()
        # A list is of the groups that are here.
        assert answers.pop("list") is ErrorCode.NONE
        assert set(answers.values()) == {ErrorCode.NOT_COORDINATOR}


def test_after_its_end_it_is_not_available() -> None:
    with Context() as context:
        context.coordinator.close()
        assert set(Answers(context).all().values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        context.elect()
        assert Answers(context).join() is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_members_need_a_name_for_their_group_and_offsets_do_not() -> None:
    with Context() as context:
        answers = Answers(context, "")
        assert set(answers.all("join", "sync", "heartbeat", "leave").values()) == {ErrorCode.INVALID_GROUP_ID}
        assert set(answers.all("commit", "fetch", "describe", "delete").values()) == {ErrorCode.NONE}


def test_a_group_id_too_long_for_a_record_is_an_error_and_leaves_nothing() -> None:
    with Context() as context:
        answers = Answers(context, "g" * 40_000)
        assert set(answers.all("join", "commit").values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert (context.shard.groups, context.shard.soft.memberships) == ({}, {})
        assert context.log.appends == 0


@pytest.mark.parametrize(
    ("group", "partition"),
    # From Utils.abs(group.hashCode()) % 50 of Apache Kafka 4.3.1.
    [
        ("", 0),
        ("g", 3),
        ("my-group", 12),
        ("console-consumer-51234", 6),
        ("grüße", 23),
        ("\U0001f600-group", 43),
        # Its hash is the smallest number, which has no absolute value.
        ("polygenelubricants", 0),
    ],
)
def test_groups_are_where_apache_kafka_looks_for_them(group: str, partition: int) -> None:
    with Context(partition_count=50, load=False) as context:
        assert context.coordinator.partition_for(group) == partition


@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "led again, in an epoch after one of another"])
def test_whoever_waits_is_sent_away_when_the_partition_goes(comes_back: bool) -> None:
    with Context() as context:
        _, join = context.new_member()
        context.stable_group(2, group="other", session_ms=100_000)
        _, rejoin = context.new_member(group="other")
        _leader, sync_join = context.new_member(group="third")
        follower, _ = context.new_member(group="third")
        context.sleep(9_000)
        assert sync_join.done
        sync = context.sync(follower, 1, group="third")
        _, late = context.new_member(group="fourth")
        if comes_back:
            context.elect(context.leader_epoch + 2)
        else:
            context.resign()
        assert join.error is ErrorCode.NONE
        assert [call.error for call in (rejoin, sync, late)] == [ErrorCode.NOT_COORDINATOR] * 3


def test_the_next_coordinator_goes_on_where_the_last_one_stopped() -> None:
    with Context() as context:
        leader, follower = context.stable_group(2)
        context.commit_offset(9, member_id=follower, generation=1)
        context.restart()
        assert context.state() is GroupState.STABLE
        assert context.heartbeat(follower, 1) is ErrorCode.NONE
        assert context.fetch_offset() == 9
        assert context.join(follower).response.generation_id == 1
        assert not context.join(leader).done


def test_settings_come_from_the_broker() -> None:
    class Broker(dict[str, int]):
        """Stands for BrokerConfig, of which only item access is used."""

    broker = Broker(
        {
            "group.min.session.timeout.ms": 1,
            "group.max.session.timeout.ms": 2,
            "group.initial.rebalance.delay.ms": 3,
            "group.max.size": 4,
            "offset.metadata.max.bytes": 5,
            "offsets.retention.minutes": 6,
            "offsets.retention.check.interval.ms": 7,
            "offsets.commit.timeout.ms": 8,
            "offsets.load.buffer.size": 9,
        }
    )
    assert GroupConfig.from_broker(broker) == GroupConfig(1, 2, 3, 4, 5, 360_000, 7, 8, 9)  # type: ignore[arg-type]
