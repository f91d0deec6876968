"""How proposed in-sync sets travel: in batches, one request at a time, until the controller has decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AlterPartitionRequest, AlterPartitionResponse, LeaderAndIsrRequest
from gregor.replication.channels.peer import PeerError
from gregor.replication.partition import alter_partition as isr_changes
from gregor.replication.partition.alter_partition import AlterPartitionManager
from gregor.replication.partition.partition import Partition
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.registration import make_persistent_nodes
from tests.replication.fakes import CountingLog, HandClock, on_loop

EPOCH = 77
Answer = tuple[ErrorCode, list[int], int]
"""Error, set and partition epoch."""


class Controller:
    """A controller that returns `answers` by partition once `go` is set; it grants the proposals for all others."""

    def __init__(self) -> None:
        self.versions: tuple[int, int] | None = (0, 3)
        self.asked: list[AlterPartitionRequest] = []
        self.answers: dict[tuple[str, int], Answer | None] = {}
        self.failures: list[Any] = []
        self.go = asyncio.Event()
        self.go.set()

    async def offered(self, api_key: int) -> tuple[int, int] | None:
        assert api_key == 56
        return self.versions

    async def send(self, request: AlterPartitionRequest, max_version: int) -> AlterPartitionResponse:
        request, _ = AlterPartitionRequest.decode(memoryview(request.encode(max_version)), max_version)
        self.asked.append(request)
        await self.go.wait()
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return AlterPartitionResponse(error_code=failure)
        topics = []
        for topic in request.topics:
            told = AlterPartitionResponse.TopicData(topic_name=topic.topic_name, topic_id=topic.topic_id)
            for one in topic.partitions:
                isr = one.new_isr or [member.broker_id for member in one.new_isr_with_epochs]
                name = topic.topic_name or topic.topic_id.decode()[0]
                answer = self.answers.get((name, one.partition_index), (ErrorCode.NONE, isr, one.partition_epoch + 1))
                if answer is not None:
                    told.partitions.append(
                        AlterPartitionResponse.PartitionData(
                            partition_index=one.partition_index,
                            error_code=answer[0],
                            leader_id=0,
                            leader_epoch=one.leader_epoch,
                            isr=answer[1],
                            partition_epoch=answer[2],
                        )
                    )
            topics.append(told)
        encoded = AlterPartitionResponse(topics=topics).encode(max_version)
        return AlterPartitionResponse.decode(memoryview(encoded), max_version)[0]


class Subject:
    def __init__(self, folder: Path) -> None:
        self.controller = Controller()
        self.store = EmbeddedStore(str(folder / FILE_NAME))
        self.tasks: set[asyncio.Future[None]] = set()
        link: Any = self.controller
        self.changes = AlterPartitionManager(0, link, self.store, lambda: EPOCH, HandClock(), self.spawn, LoopGate())

    def spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def subject(folder: Path) -> AsyncIterator[Subject]:
    it = Subject(folder)
    await it.store.start()
    await make_persistent_nodes(it.store)
    try:
        yield it
    finally:
        for task in list(it.tasks):
            task.cancel()
        await it.store.close()


def leader(topic: str = "t", index: int = 0, *, with_id: bool = True) -> Partition:
    partition = Partition(topic, index, topic.encode() * 16 if with_id else bytes(16), 0)
    log: Any = CountingLog()
    partition.use_log(log)
    lead(partition, 3, 5)
    return partition


def lead(partition: Partition, leader_epoch: int, partition_epoch: int) -> None:
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=partition.partition,
        controller_epoch=2,
        leader=0,
        leader_epoch=leader_epoch,
        isr=[0, 1, 2],
        partition_epoch=partition_epoch,
        replicas=[0, 1, 2],
    )
    partition.become_leader(state, 0)


def propose(it: Subject, partition: Partition, *isr: int) -> None:
    partition.in_sync.propose(list(isr))
    it.changes.submit(partition)


async def propose_and_wait(it: Subject, partition: Partition, *isr: int) -> None:
    """Until the controller has the question, which it answers when `go` is set."""
    it.controller.go.clear()
    propose(it, partition, *isr)
    await it.until(lambda: len(it.controller.asked) == 1)


@pytest.mark.parametrize("version", range(4))
@on_loop
async def test_what_is_asked_and_granted(tmp_path: Path, version: int) -> None:
    async with subject(tmp_path) as it:
        it.controller.versions = 0, version
        partition = leader()
        partition.leadership.update_follower(1, 0, 0, broker_epoch=8)
        propose(it, partition, 0, 1)
        await it.until(lambda: partition.isr == [0, 1])
        assert (partition.partition_epoch, partition.in_sync.proposed_isr) == (6, None)
        (asked,) = it.controller.asked
        assert (asked.broker_id, asked.broker_epoch) == (0, EPOCH)
        (topic,) = asked.topics
        assert (topic.topic_name, topic.topic_id) == (("t", bytes(16)) if version < 2 else ("", b"t" * 16))
        (one,) = topic.partitions
        assert (one.leader_epoch, one.partition_epoch, one.leader_recovery_state) == (3, 5, 0)
        members = [(member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs]
        assert (one.new_isr, members) == (([0, 1], []) if version < 3 else ([], [(0, EPOCH), (1, 8)]))


@on_loop
async def test_a_topic_without_an_id_is_named(tmp_path: Path) -> None:
    async with subject(tmp_path) as it:
        partition = leader(with_id=False)
        propose(it, partition, 0)
        await it.until(lambda: partition.isr == [0])
        assert it.controller.asked[0].topics[0].topic_name == "t"


@on_loop
async def test_what_comes_up_meanwhile_goes_together_in_the_next(tmp_path: Path) -> None:
    async with subject(tmp_path) as it:
        partitions = [leader("t", 0), leader("t", 1), leader("u", 0)]
        await propose_and_wait(it, partitions[0], 0)
        propose(it, partitions[1], 0)
        propose(it, partitions[2], 0, 1)
        it.controller.go.set()
        await it.until(lambda: all(partition.in_sync.proposed_isr is None for partition in partitions))
        assert [[len(topic.partitions) for topic in asked.topics] for asked in it.controller.asked] == [[1], [1, 1]]
        await it.until(lambda: not it.tasks)
        # Later ones set it going again.
        propose(it, partitions[0], 0, 2)
        await it.until(lambda: partitions[0].isr == [0, 2])


@on_loop
async def test_many_go_in_several_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "MAX_PARTITIONS", 3)
    async with subject(tmp_path) as it:
        partitions = [leader("t", index) for index in range(7)]
        for partition in partitions:
            propose(it, partition, 0)
        await it.until(lambda: not it.tasks)
        assert all(partition.isr == [0] for partition in partitions)
        assert [len(asked.topics[0].partitions) for asked in it.controller.asked] == [3, 3, 1]


@on_loop
async def test_it_is_asked_again_until_there_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_DELAY_S", 0.001)
    async with subject(tmp_path) as it:
        it.controller.failures = [
            PeerError("nobody there"),
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.STALE_BROKER_EPOCH,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
        it.controller.answers["t", 1] = None  # left out of the answer
        partitions = [leader("t", 0), leader("t", 1)]
        for partition in partitions:
            propose(it, partition, 0)
        await it.until(lambda: partitions[0].isr == [0])
        assert partitions[1].in_sync.proposed_isr == [0]
        it.controller.answers["t", 1] = (ErrorCode.NOT_CONTROLLER, [], 0)
        heard = len(it.controller.asked)
        await it.until(lambda: len(it.controller.asked) > heard + 1)
        del it.controller.answers["t", 1]
        await it.until(lambda: partitions[1].isr == [0])


@on_loop
async def test_unexpected_error_of_a_request_is_logged_and_the_proposal_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_DELAY_S", 0.001)
    async with subject(tmp_path) as it:
        it.controller.failures = [RuntimeError("one"), RuntimeError("one"), RuntimeError("another")]
        partitions = [leader("t", index) for index in range(12)]
        for partition in partitions:
            propose(it, partition, 0)
        await it.until(lambda: all(partition.isr == [0] for partition in partitions))
        await it.until(lambda: not it.tasks)
        assert len(it.controller.asked) == 4
    lines = [record for record in caplog.records if record.exc_info is not None]
    causes = [record.getMessage().rpartition(": ")[2] for record in lines]
    assert causes == ["RuntimeError('one')", "RuntimeError('another')"]
    assert all("in-sync replicas of t-0, t-1, t-2, " in record.getMessage() for record in lines)
    assert all(" t-9 and 2 more could not be altered" in record.getMessage() for record in lines)


@on_loop
async def test_decision_that_cannot_be_applied_leaves_those_of_other_partitions_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_DELAY_S", 0.001)
    decided = Partition.isr_decided
    is_broken = True

    def broken(partition: Partition, isr: list[int], partition_epoch: int, now_ms: int) -> None:
        if partition.partition == 0 and is_broken:
            raise RuntimeError("a defect")
        decided(partition, isr, partition_epoch, now_ms)

    monkeypatch.setattr(Partition, "isr_decided", broken)
    async with subject(tmp_path) as it:
        partitions = [leader("t", index) for index in range(13)]
        for partition in partitions:
            propose(it, partition, 0)
        await it.until(lambda: all(partition.isr == [0] for partition in partitions[1:]))
        await it.until(lambda: len(it.controller.asked) > 3)
        assert partitions[0].in_sync.proposed_isr == [0], "the larger set counts until the decision is applied"
        assert partitions[0].in_sync.maximal_isr == {0, 1, 2}
        assert [len(asked.topics[0].partitions) for asked in it.controller.asked[:3]] == [13, 1, 1]
        is_broken = False
        await it.until(lambda: partitions[0].isr == [0])
    (line,) = [line for line in caplog.messages if "unexpected error" in line]
    assert line.startswith("The in-sync replicas of t-0 could not be altered") and "RuntimeError('a defect')" in line


@on_loop
async def test_who_has_started_anew_since_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted follower may lack records: the proposal has its earlier epoch, and the controller can refuse it."""
    monkeypatch.setattr(isr_changes, "RETRY_DELAY_S", 0.001)
    async with subject(tmp_path) as it:
        it.controller.failures = [PeerError("nobody there")] * 2
        partition = leader()
        partition.leadership.update_follower(1, 0, 0, broker_epoch=8)
        await propose_and_wait(it, partition, 0, 1)
        partition.leadership.update_follower(1, 0, 0, broker_epoch=9)
        it.controller.go.set()
        await it.until(lambda: partition.isr == [0, 1])
        members = [asked.topics[0].partitions[0].new_isr_with_epochs[1] for asked in it.controller.asked]
        assert [(member.broker_id, member.broker_epoch) for member in members] == [(1, 8)] * 3


@pytest.mark.parametrize("error", sorted(isr_changes.UNDONE | isr_changes.AWAITING_METADATA))
@on_loop
async def test_a_refusal_is_final(tmp_path: Path, error: ErrorCode) -> None:
    async with subject(tmp_path) as it:
        it.controller.answers["t", 0] = (error, [], 0)
        partition = leader()
        propose(it, partition, 0)
        await it.until(lambda: not it.tasks)
        assert len(it.controller.asked) == 1
        assert (partition.isr, partition.partition_epoch) == ([0, 1, 2], 5)
        # Where something newer is on its way, nothing else is proposed until it comes.
        waits = error in isr_changes.AWAITING_METADATA
        assert partition.in_sync.proposed_isr == ([0] if waits else None)
        if waits:
            lead(partition, 4, 6)
            assert partition.in_sync.proposed_isr is None


@on_loop
async def test_newer_metadata_makes_the_proposal_void(tmp_path: Path) -> None:
    async with subject(tmp_path) as it:
        partition = leader()
        await propose_and_wait(it, partition, 0)
        lead(partition, 4, 6)
        propose(it, partition, 0, 2)
        # The response to the first comes too late, and is not applied to the second.
        it.controller.go.set()
        await it.until(lambda: partition.in_sync.proposed_isr is None)
        assert (partition.isr, partition.partition_epoch) == ([0, 2], 7)
        assert [asked.topics[0].partitions[0].leader_epoch for asked in it.controller.asked] == [3, 4]


# -- by the state node -------------------------------------------------------------------------------------------------


async def make_state(it: Subject, state: nodes.PartitionState, times: int) -> None:
    path = nodes.state_path("t", 0)
    await it.store.create(path, nodes.encode_state(state), make_parents=True)
    for _ in range(times):
        await it.store.set(path, nodes.encode_state(state))


@on_loop
async def test_where_the_controller_cannot_be_asked_the_node_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_changes, "NOTICE_DELAY_S", 0.001)
    async with subject(tmp_path) as it:
        it.controller.versions = None
        await make_state(it, nodes.PartitionState(0, 3, (0, 1, 2), 2), 5)
        partition = leader()
        propose(it, partition, 0, 1)
        await it.until(lambda: not it.tasks)
        assert (partition.isr, partition.partition_epoch) == ([0, 1], 6)
        found = await it.store.get(nodes.state_path("t", 0))
        assert found is not None and nodes.decode_state(found[0]) == nodes.PartitionState(0, 3, (0, 1), 2)
        (notice,) = await it.store.children(nodes.ISR_CHANGE_NOTIFICATIONS)
        told = await it.store.get(f"{nodes.ISR_CHANGE_NOTIFICATIONS}/{notice}")
        assert told is not None and nodes.decode_partition_list(told[0]) == [("t", 0)]
        assert it.controller.asked == []


@on_loop
async def test_a_write_whose_answer_was_lost_is_found_done_another_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_changes, "NOTICE_DELAY_S", 0.001)
    async with subject(tmp_path) as it:
        it.controller.versions = None
        await make_state(it, nodes.PartitionState(0, 3, (0, 1), 2), 7)
        partition = leader()
        propose(it, partition, 0, 1)
        await it.until(lambda: partition.in_sync.proposed_isr is None)
        assert (partition.isr, partition.partition_epoch) == ([0, 1], 7)
        await it.store.set(nodes.state_path("t", 0), nodes.encode_state(nodes.PartitionState(1, 4, (1,), 2)))
        propose(it, partition, 0)
        await it.until(lambda: not it.tasks)
        # The controller sends newer metadata soon.
        assert (partition.isr, partition.in_sync.proposed_isr) == ([0, 1], [0])


@on_loop
async def test_a_controller_out_of_reach_is_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_DELAY_S", 0.001)
    caplog.set_level("INFO", isr_changes.__name__)
    async with subject(tmp_path) as it:
        it.controller.failures = [*[PeerError("nobody there")] * 5, *[ErrorCode.NOT_CONTROLLER] * 5]
        partition = leader("t", 0)
        propose(it, partition, 0)
        await it.until(lambda: partition.isr == [0])
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["nobody there", "error 41"]
