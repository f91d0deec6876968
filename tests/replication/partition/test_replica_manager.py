"""ReplicaManager: the controller's requests, in and out of order, and the tables of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.partition import Partition
from gregor.replication.partition.replica_manager import EPOCH_DURING_DELETE, EPOCH_UNKNOWN, ReplicaManager
from tests.replication.fakes import CountingLog, CountingLogs, HandClock
from tests.support.cycles import left_in_cycles

ID, OTHER_ID = b"i" * 16, b"o" * 16


class Subject:
    def __init__(self) -> None:
        self.logs = CountingLogs()
        self.removed: list[str] = []
        logs: Any = self.logs
        self.settings: dict[str, Any] = {"t": "before"}
        self.clock = HandClock()
        self.manager = ReplicaManager(
            0, logs, self.settings.__getitem__, self.clock, folder_removed=self.removed.append
        )
        self.leadership: list[tuple[list[int], list[int]]] = []
        self.manager.on_leadership.append(
            lambda leaders, followers: self.leadership.append(
                ([p.partition for p in leaders], [p.partition for p in followers])
            )
        )
        self.stopped: list[Partition] = []
        self.manager.on_stopped.append(self.stopped.extend)

    def lead(self, *leaders: int, epoch: int = 0, topic_id: bytes = ID, controller_epoch: int = 1, **state: Any) -> Any:
        """LeaderAndIsr for partitions 0, 1 … of topic t with these leaders; the errors by partition."""
        request = LeaderAndIsrRequest(
            controller_epoch=controller_epoch,
            topic_states=[
                LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=topic_id,
                    partition_states=[
                        LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                            partition_index=index,
                            leader=leader,
                            leader_epoch=epoch,
                            isr=state.get("isr", [leader]),
                            replicas=state.get("replicas", [0, 1]),
                            partition_epoch=state.get("partition_epoch", epoch),
                        )
                        for index, leader in enumerate(leaders)
                    ],
                )
            ],
        )
        response = run_all(self.manager.apply(request))
        if response.error_code:
            return response.error_code
        (topic,) = response.topics
        assert topic.topic_id == topic_id
        return [error.error_code for error in topic.partition_errors]

    def stop(self, *indexes: int, epoch: int = EPOCH_UNKNOWN, delete: bool = False, controller_epoch: int = 1) -> Any:
        response = run_all(
            self.manager.stop(
                StopReplicaRequest(
                    controller_epoch=controller_epoch,
                    topic_states=[
                        StopReplicaRequest.StopReplicaTopicState(
                            topic_name="t",
                            partition_states=[
                                StopReplicaRequest.StopReplicaPartitionState(
                                    partition_index=index, leader_epoch=epoch, delete_partition=delete
                                )
                                for index in indexes
                            ],
                        )
                    ],
                )
            )
        )
        if response.error_code:
            return response.error_code
        return [(error.topic_name, error.partition_index, error.error_code) for error in response.partition_errors]


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_roles_are_taken_and_told_once(subject: Subject) -> None:
    assert subject.lead(0, 1) == [0, 0]
    assert subject.leadership == [([0], [1])]
    first, second = subject.manager.get("t", 0), subject.manager.get("t", 1)
    assert first is not None and first.is_leader and first is subject.manager.get_by_id(ID, 0)
    assert second is not None and not second.is_leader and second.leader_id == 1
    assert subject.manager.get("t", 2) is None
    # Leader and follower change places.
    assert subject.lead(1, 0, epoch=1) == [0, 0]
    assert subject.leadership[1:] == [([1], [0])]
    assert (first.is_leader, second.is_leader) == (False, True)


def test_a_leader_that_missed_an_epoch_leads_anew(subject: Subject) -> None:
    subject.lead(0, epoch=0)
    subject.lead(0, epoch=1)
    assert subject.leadership == [([0], [])]
    # Another broker may have led in epoch 2.
    subject.lead(0, epoch=3)
    assert subject.leadership == [([0], []), ([0], [])]


def test_deleted_partitions_are_freed_without_a_collection(subject: Subject) -> None:
    def lead_follow_and_delete() -> None:
        verdicts: list[ErrorCode] = []
        subject.lead(0, 1, epoch=1)
        led = subject.manager.get("t", 0)
        assert led is not None
        led.append(b"abc", 1, -1)
        led.delayed.watch(lambda: None)
        led.leadership.when_committed(3, verdicts.append)
        led.leadership.update_follower(1, 3, 2)
        led.in_sync.propose([0, 1])
        led.isr_decided([0, 1], 2, 3)
        led.leadership.when_committed(9, verdicts.append)
        subject.lead(1, 0, epoch=2)
        subject.stop(0, 1, delete=True)
        subject.stopped.clear()
        assert verdicts == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    assert left_in_cycles(lead_follow_and_delete) == set()


def test_what_is_set_aside_for_want_of_room_follows_again_afterwards(subject: Subject) -> None:
    subject.lead(1, 0, epoch=4)
    led = subject.manager.get("t", 1)
    assert led is not None
    # No other replica is in sync: it stays, if only for fetches.
    assert subject.manager.suspend([("t", 0), ("t", 1), ("t", 7)]) == [("t", 0)]
    led.in_sync.commit([0, 1])
    waiting: list[ErrorCode] = []
    led.leadership.when_committed(10, waiting.append)
    assert subject.manager.suspend([("t", 1)]) == [("t", 1)]
    assert waiting == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [partition.partition for partition in subject.stopped] == [0, 1]
    assert subject.lead(1, 0, epoch=4, isr=[1, 0]) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    subject.manager.resume([("t", 0), ("t", 1)])
    del subject.leadership[:]
    # In the same epoch where the leader is the same.
    assert subject.lead(1, epoch=4) == [0]
    assert subject.lead(1, 1, epoch=5) == [0, 0]
    assert subject.leadership == [([], [0]), ([], [0, 1])]


def test_what_is_set_aside_is_led_where_no_other_replica_is_in_sync(subject: Subject) -> None:
    """The disks of all brokers became full at the same time: each left its partitions to the others."""
    subject.lead(1, 0, epoch=4)
    led = subject.manager.get("t", 1)
    assert led is not None
    led.in_sync.commit([0, 1])
    assert len(subject.manager.suspend([("t", 0), ("t", 1)])) == 2
    assert subject.lead(0, 0, epoch=5, isr=[0, 1]) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert subject.lead(0, 0, epoch=3, isr=[0]) == [ErrorCode.STALE_CONTROLLER_EPOCH] * 2
    assert subject.lead(0, 1, epoch=6, isr=[0]) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    found = [subject.manager.get("t", index) for index in range(2)]
    assert [partition is not None and partition.is_leader for partition in found] == [True, False]
    # A leader of which the controller had noted before that it did not serve follows no other, and is elected again.
    assert subject.lead(-1, epoch=7, isr=[0]) == [0]


def test_changed_settings_reach_the_logs_of_suspended_partitions_too(subject: Subject) -> None:
    """A full disk has room again when retention deletes what a lower retention.bytes allows it to."""
    subject.lead(1, 1)
    subject.logs.get_or_create("t", 2, ID, None)
    assert subject.manager.suspend([("t", 0)]) == [("t", 0)]
    generation = subject.manager.generation
    subject.settings["t"] = "after"
    for topics in ({"u"}, {"t"}):
        assert subject.logs.logs["t", 0].configured is None
        assert len(list(subject.manager.settings_changed(topics))) == 2, "a step for each partition"
    configured = [subject.logs.logs["t", index].configured for index in range(3)]
    assert configured == ["after", "after", None], "the last one is not assigned to this broker"
    assert subject.manager.generation > generation


def test_what_was_refused_lately_is_awaited_by_who_leads_from_now_on(subject: Subject) -> None:
    clock = subject.clock
    subject.manager.note_refused(("t", 0), 7, 1, 0)  # no log: nothing is noted for names that a client made up
    subject.lead(1)
    partition = subject.manager.get("t", 0)
    assert partition is not None
    log: Any = partition.log
    subject.manager.note_refused(("t", 0), 6, 1, 3)
    clock.now_ms += 25_000
    for sequence in (5, 9):
        subject.manager.note_refused(("t", 0), 7, 1, sequence)
    clock.now_ms += 10_000
    subject.lead(0, epoch=1)
    assert log.awaited == {7: (1, 5)}
    # As the leader with too few in sync.
    subject.manager.note_refused(("t", 0), 8, 1, 2)
    assert log.awaited == {7: (1, 5), 8: (1, 2)}
    subject.lead(1, epoch=2)
    subject.lead(0, epoch=3)
    assert log.awaited == {}


def test_clients_of_a_new_leader_wrote_to_another_one_before(subject: Subject) -> None:
    clock = subject.clock
    subject.lead(0, epoch=0)
    partition = subject.manager.get("t", 0)
    assert partition is not None
    log: Any = partition.log
    assert log.led_since_ms is None  # no broker led it before
    subject.lead(1, epoch=1)
    clock.now_ms += 1000
    subject.lead(0, epoch=2)
    began_ms = clock.now_ms
    assert log.led_since_ms == began_ms
    clock.now_ms += 1000
    subject.lead(0, epoch=3)
    assert log.led_since_ms == began_ms


def test_repeated_and_older_epochs_change_nothing(subject: Subject) -> None:
    subject.lead(0, epoch=3)
    for epoch in (3, 2):
        assert subject.lead(1, epoch=epoch) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    partition = subject.manager.get("t", 0)
    assert partition is not None and partition.is_leader
    assert len(subject.leadership) == 1


def test_older_controllers_are_refused(subject: Subject) -> None:
    assert subject.lead(0, controller_epoch=5) == [0]
    assert subject.lead(1, epoch=9, controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert subject.stop(0, controller_epoch=4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert subject.lead(1, epoch=9, controller_epoch=6) == [0]


def test_another_topic_of_the_same_name_is_refused(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    subject.lead(0)
    assert subject.lead(0, epoch=1, topic_id=OTHER_ID) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert f"t-0: the controller's request is refused: it has topic id {OTHER_ID.hex()}" in caplog.text
    # Also when only the folder is left of it.
    subject.logs.logs["t", 0] = CountingLog(topic_id=OTHER_ID)
    del subject.manager.partitions["t", 0]
    assert subject.lead(0, epoch=2) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_an_id_that_comes_later_is_taken(subject: Subject) -> None:
    subject.lead(0, topic_id=bytes(16))
    assert subject.manager.by_topic_id == {}
    assert subject.lead(0, epoch=1) == [0]
    partition = subject.manager.get_by_id(ID, 0)
    assert partition is not None and partition is subject.manager.get("t", 0) and partition.topic_id == ID


def test_an_id_may_come_within_the_same_epoch(subject: Subject) -> None:
    """As from the first controller of a release that knows of ids."""
    subject.lead(0, 1, topic_id=bytes(16))
    assert subject.lead(0, 1) == [0, 0]
    assert [partition.partition for partition in subject.manager.by_topic_id.values()] == [0, 1]
    assert subject.leadership == [([0], [1]), ([], [1])]
    assert subject.lead(0, 1) == [ErrorCode.STALE_CONTROLLER_EPOCH] * 2


def test_requests_for_other_brokers_are_refused(subject: Subject) -> None:
    assert subject.lead(1, replicas=[1, 2]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert subject.manager.partitions == {}


def test_a_log_that_cannot_be_opened_is_reported_and_tried_again(subject: Subject) -> None:
    subject.logs.failed["t", 0] = OSError()
    assert subject.lead(0, 0) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert subject.leadership == [([1], [])]
    subject.logs.failed.clear()
    assert subject.lead(0) == [0]


def test_a_disk_that_refuses_an_epoch_fails_its_own_partition_alone(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.lead(1, 1, 1)
    log = subject.logs.logs["t", 1]

    def refuse(epoch: int, start_offset: int) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(log, "assign_epoch", refuse)
    assert subject.lead(0, 0, 0, epoch=1) == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert subject.leadership[1:] == [([0, 2], [])]
    assert [partition.partition for partition in subject.stopped] == [1]
    partition = subject.manager.get("t", 1)
    assert partition is not None and not partition.is_leader and partition.log is None
    monkeypatch.undo()
    assert subject.lead(0, 0, 0, epoch=1)[1] == 0
    assert partition.is_leader and log.epochs == [(1, 0)]


def test_of_many_changes_listeners_hear_in_several_steps(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gregor.replication.partition.replica_manager.NOTIFIED_AT_A_TIME", 2)
    assert subject.lead(0, 1, 0, 0, 1, 0, 0) == [0] * 7
    assert subject.leadership == [([0, 2], [1, 4]), ([3, 5], []), ([6], [])]


def test_who_was_given_a_role_hears_of_it_although_the_rest_is_given_up(subject: Subject) -> None:
    """As when the controller of this process resigns in the middle: the next one does not change these."""
    states = [
        LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=index, leader=index % 2, replicas=[0, 1])
        for index in range(6)
    ]
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=ID, partition_states=states)
    steps = subject.manager.apply(LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic]))
    for _ in range(4):
        next(steps)
    steps.close()
    assert subject.leadership == [([0, 2], [1, 3])]
    assert set(subject.manager.partitions) == {("t", 0), ("t", 1), ("t", 2), ("t", 3)}
    stops = [StopReplicaRequest.StopReplicaPartitionState(partition_index=index) for index in range(4)]
    stopped = StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=stops)
    ending = subject.manager.stop(StopReplicaRequest(controller_epoch=1, topic_states=[stopped]))
    for _ in range(2):
        next(ending)
    ending.close()
    assert [partition.partition for partition in subject.stopped] == [0, 1]


def test_the_high_watermark_is_put_between_the_ends_of_the_log(subject: Subject) -> None:
    for index, (start, end, checkpoint) in enumerate([(5, 9, 2), (0, 3, 8), (0, 9, 4)]):
        subject.logs.logs["t", index] = CountingLog(start, end, checkpoint, topic_id=ID)
    subject.lead(1, 1, 1)
    assert [subject.manager.partitions["t", index].high_watermark for index in range(3)] == [5, 3, 4]


def test_a_stopped_replica_stays_known_and_serves_again(subject: Subject) -> None:
    subject.lead(0, 0)
    assert subject.stop(0, 7) == [("t", 0, 0), ("t", 7, 0)]
    partition = subject.manager.get("t", 0)
    assert partition is not None and not partition.is_leader and partition.log is None
    assert [p.partition for p in subject.stopped] == [0]
    assert subject.removed == [] and ("t", 0) in subject.logs.logs
    assert subject.lead(0, epoch=1) == [0]
    assert partition.is_leader


def test_deletion_removes_everything_and_answers_waiters(subject: Subject) -> None:
    subject.lead(0)
    partition = subject.manager.partitions["t", 0]
    answers: list[ErrorCode] = []
    partition.leadership.when_committed(1, answers.append)
    assert subject.stop(0, epoch=EPOCH_DURING_DELETE, delete=True) == [("t", 0, 0)]
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not (subject.manager.partitions or subject.manager.by_topic_id or subject.logs.logs)
    assert subject.removed == ["t-0.0-delete"]
    # Again, and for a folder without a partition: the topic went while the broker was down.
    assert subject.stop(0, epoch=EPOCH_DURING_DELETE, delete=True) == [("t", 0, 0)]
    subject.logs.logs["t", 1] = CountingLog()
    assert subject.stop(1, delete=True) == [("t", 1, 0)]
    assert subject.removed == ["t-0.0-delete", "t-1.0-delete"]


def test_a_stop_from_an_older_leadership_is_fenced(subject: Subject) -> None:
    subject.lead(0, epoch=4)
    assert subject.stop(0, epoch=3, delete=True) == [("t", 0, ErrorCode.FENCED_LEADER_EPOCH)]
    assert subject.stop(0, epoch=4) == [("t", 0, 0)]


def test_a_folder_that_failed_to_load_is_not_forgotten(subject: Subject) -> None:
    subject.logs.failed["t", 0] = OSError()
    assert subject.stop(0, delete=True) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert subject.stopped == []


def test_the_generation_grows_with_every_change(subject: Subject) -> None:
    seen = [subject.manager.generation]
    calls: list[Callable[[], Any]] = [
        lambda: subject.lead(0),
        lambda: subject.lead(1, epoch=1),
        lambda: subject.stop(0, delete=True),
    ]
    for call in calls:
        call()
        seen.append(subject.manager.generation)
    assert seen == sorted(set(seen))


def test_in_steps_each_partition_is_ready_when_the_next_begins(subject: Subject) -> None:
    request = LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name="t",
                topic_id=ID,
                partition_states=[
                    LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=index, isr=[0], replicas=[0])
                    for index in range(3)
                ],
            )
        ]
    )
    served = []
    for _ in subject.manager.apply(request):
        served.append(sum(partition.is_leader for partition in subject.manager.partitions.values()))
    assert served == [1, 2, 3]
    assert subject.leadership == [([0, 1, 2], [])]
