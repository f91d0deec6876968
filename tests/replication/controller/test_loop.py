"""ControllerLoop with several brokers: delivery, retries, lives of brokers, lost sessions, overtaken pictures."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ControlledShutdownRequest, LeaderAndIsrRequest, UpdateMetadataRequest
from gregor.replication.channels import senders as controller_senders
from gregor.replication.controller import loop as controller_loop
from gregor.replication.controller import writes as controller_writes
from gregor.replication.controller.answers import ControllerAnswers
from gregor.replication.controller.decision.decide import decide
from gregor.replication.controller.loop import ControllerLoop
from gregor.replication.controller.reader import ControllerReader
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import Create, Delete
from gregor.replication.store.nodes import PartitionState, ReplicaAssignment, TopicAssignment
from gregor.replication.store.registration import announce_disk_event
from gregor.replication.store.topic_configs import TopicConfigs
from tests.replication.controller_subject import Brokers, Subject, running
from tests.replication.fakes import HandClock, on_loop


@on_loop
async def test_brokers_come_and_go(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2), (2, 1))
        assert (subject.brokers.led_by(1), subject.brokers.led_by(2)) == ({("t", 0)}, {("t", 1)})
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        assert await subject.state("t", 1) == PartitionState(1, 1, (1,), 1)
        assert subject.brokers.led_by(1) == {("t", 0), ("t", 1)}
        await subject.join(2)
        await subject.settle()
        # Back, but not in sync and not leading; it knows of both.
        assert subject.brokers.led_by(2) == set()
        last = [r for id_, r in subject.brokers.heard if id_ == 2 and isinstance(r, LeaderAndIsrRequest)][-1]
        assert sum(len(topic.partition_states) for topic in last.topic_states) == 2


@on_loop
async def test_the_others_need_not_wait_until_the_controller_s_own_broker_is_through(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        before = len(subject.brokers.heard)
        subject.brokers.ready.clear()
        creating = asyncio.ensure_future(subject.create("t", (1, 2), (2, 1)))
        await subject.brokers.until(lambda: len(subject.brokers.heard) == before + 3)
        heard = [(id_, type(request).__name__) for id_, request in subject.brokers.heard[before:]]
        assert sorted(heard) == [(1, "LeaderAndIsrRequest"), (2, "LeaderAndIsrRequest"), (2, "UpdateMetadataRequest")]
        subject.brokers.ready.set()
        await creating
        assert [id_ for id_, _ in subject.brokers.heard[before:]].count(1) == 2


@on_loop
async def test_a_broker_that_does_not_respond_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_senders, "RETRY_DELAY_S", 0.001)
    async with running(tmp_path, 2) as subject:
        subject.brokers.unreachable.add(2)
        heard_before = len(subject.brokers.to(2))
        await subject.create("t", (1,), (2,))
        await subject.create("u", (2,))
        assert subject.brokers.led_by(1) == {("t", 0)}
        assert len(subject.brokers.to(2)) == heard_before
        subject.brokers.unreachable.clear()

        def topics_told() -> list[list[str]]:
            return [[t.topic_name for t in request.topic_states] for request in subject.brokers.to(2)]

        # Everything, in order: the role first, then the news.
        await subject.brokers.until(lambda: topics_told()[-4:] == [["t"], ["t"], ["u"], ["u"]])
        assert subject.brokers.led_by(2) == {("t", 1), ("u", 0)}


@on_loop
async def test_until_notified_waits_for_the_requests_sent_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_senders, "RETRY_DELAY_S", 0.001)
    async with running(tmp_path, 2, 3) as subject:
        await subject.loop.until_notified(30)
        subject.brokers.unreachable.add(2)
        await subject.create("t", (3,))
        await subject.loop.until_notified(0.01)  # the wait ends
        await subject.brokers.until(lambda: "t" in topics_of(subject.brokers.to(3)))
        assert "t" not in topics_of(subject.brokers.to(2))
        waiting = asyncio.ensure_future(subject.loop.until_notified(30))
        await subject.settle()
        assert not waiting.done()
        subject.brokers.unreachable.clear()
        await waiting
        assert "t" in topics_of(subject.brokers.to(2))
        # A broker that is gone is no longer waited for.
        subject.brokers.unreachable.add(2)
        await subject.create("u", (3,))
        waiting = asyncio.ensure_future(subject.loop.until_notified(30))
        await asyncio.sleep(0)
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        await waiting
        assert "u" not in topics_of(subject.brokers.to(2))


def topics_of(requests: list[Any]) -> set[str]:
    """Those that the metadata is about."""
    return {
        topic.topic_name
        for request in requests
        if isinstance(request, UpdateMetadataRequest)
        for topic in request.topic_states
    }


@on_loop
async def test_requests_to_an_earlier_life_of_a_broker_are_not_sent_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_senders, "RETRY_DELAY_S", 0.001)
    async with running(tmp_path, 2) as subject:
        subject.brokers.unreachable.add(2)
        await subject.create("t", (2,))
        path = nodes.broker_path(2)
        found = await subject.store.get(path)
        assert found is not None
        await subject.store.multi([Delete(path), Create(path, found[0], ephemeral=True)])
        await subject.settle()
        subject.brokers.unreachable.clear()
        mark = len(subject.brokers.to(2))
        await subject.brokers.until(lambda: ("t", 0) in subject.brokers.led_by(2))
        stat = await subject.store.exists(path)
        assert stat is not None
        assert {request.broker_epoch for request in subject.brokers.to(2)[mark:]} == {stat.czxid}


@pytest.mark.parametrize("back", ["broker", "disk"])
@on_loop
async def test_a_failed_disk_and_a_deletion_that_waits_for_it(tmp_path: Path, back: str) -> None:
    async with running(tmp_path, 2) as subject:
        subject.brokers.broken.add((2, "t", 0))
        await subject.create("t", (2, 1))
        assert await subject.state("t") == PartitionState(1, 1, (1,), 1)
        await subject.store.create(nodes.delete_topic_path("t"))
        await subject.settle()
        assert await subject.store.exists(nodes.topic_path("t")) is not None
        subject.brokers.broken.clear()
        if back == "broker":
            await subject.store.delete(nodes.broker_path(2))
            await subject.join(2)
        else:
            await announce_disk_event(subject.store, 2)
        await subject.settle()
        assert await subject.store.exists(nodes.topic_path("t")) is None
        assert await subject.store.children(nodes.DELETE_TOPICS) == []


@on_loop
async def test_a_context_outdated_by_a_leader_is_read_again(tmp_path: Path) -> None:
    async with running(tmp_path, 2, 3) as subject:
        await subject.create("t", (1, 2, 3))
        # Leader 1 shrinks the ISR itself; the controller does not know when broker 3 dies.
        path = nodes.state_path("t", 0)
        await subject.store.set(path, nodes.encode_state(PartitionState(1, 0, (1, 3), 1)))
        await subject.store.delete(nodes.broker_path(3))
        await subject.settle()
        assert await subject.state("t") == PartitionState(1, 1, (1,), 1)


@on_loop
async def test_isr_notices_are_read_and_removed(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        await subject.store.set(nodes.state_path("t", 0), nodes.encode_state(PartitionState(1, 0, (1,), 1)))
        notice = nodes.encode_partition_list([("t", 0), ("none", 3)])
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, notice, sequential=True)
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, b"damaged", sequential=True)
        await subject.settle()
        assert await subject.store.children(nodes.ISR_CHANGE_NOTIFICATIONS) == []
        assert subject.loop.cluster is not None
        partition = subject.loop.cluster.partition(("t", 0))
        assert partition is not None and partition.state is not None
        assert (partition.state.isr, partition.version) == ((1,), 1)


@on_loop
async def test_a_preferred_election_by_node(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        await subject.store.set(nodes.state_path("t", 0), nodes.encode_state(PartitionState(2, 1, (1, 2), 1)))
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, nodes.encode_partition_list([("t", 0)]), sequential=True)
        await subject.settle()
        for _ in range(2):
            await subject.store.create(nodes.PREFERRED_ELECTION, nodes.encode_partition_list([("t", 0)]))
            await subject.settle()
            assert await subject.store.exists(nodes.PREFERRED_ELECTION) is None
        assert await subject.state("t") == PartitionState(1, 2, (1, 2), 1)
        await subject.store.create(nodes.PREFERRED_ELECTION, b"damaged")
        await subject.settle()
        assert await subject.store.exists(nodes.PREFERRED_ELECTION) is None


@on_loop
async def test_controlled_shutdown(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (2, 1), (2,), (1, 2))
        await subject.store.set(nodes.state_path("t", 2), nodes.encode_state(PartitionState(2, 1, (2,), 1)))
        await subject.store.create(nodes.ISR_CHANGE_PREFIX, nodes.encode_partition_list([("t", 2)]), sequential=True)
        await subject.settle()
        stat = await subject.store.exists(nodes.broker_path(2))
        assert stat is not None
        answers = ControllerAnswers(subject.loop, subject.store)
        # A stale epoch: the request of an earlier life.
        stale = ControlledShutdownRequest(broker_id=2, broker_epoch=stat.czxid - 1)
        assert (await answers.controlled_shutdown(stale)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await subject.state("t", 0)).leader == 2
        answer = await answers.controlled_shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=stat.czxid))
        assert answer.error_code == 0
        # No other replica is in sync.
        assert [(left.topic_name, left.partition_index) for left in answer.remaining_partitions] == [("t", 2)]
        assert (await subject.state("t", 0)).leader == 1
        assert (await subject.state("t", 1)).leader == 2


@on_loop
async def test_a_caller_that_gives_up_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, 2) as it:
        await it.create("t", (1, 2))
        heard = len(it.brokers.heard)
        answers = ControllerAnswers(it.loop, it.store)
        unknown = ControlledShutdownRequest(broker_id=9)
        for asked in (it.loop.elect([("t", 0)], False), answers.controlled_shutdown(unknown)):
            task = asyncio.ensure_future(asked)
            await asyncio.sleep(0)
            task.cancel()
            await it.settle()
        assert len(it.brokers.heard) == heard  # nothing was read and sent again
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        assert (await it.state("t")).leader == 1


@on_loop
async def test_only_one_controller_is_elected_and_the_next_follows_it(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        configs = TopicConfigs(subject.store, BrokerConfig({}), 2, subject.spawn, HandClock(), LoopGate())
        second = ControllerLoop(2, subject.store, Brokers(), configs, HandClock(), LoopGate())
        await second.start()
        assert (subject.loop.is_active, second.is_active) == (True, False)
        answer = await ControllerAnswers(second, subject.store).controlled_shutdown(
            ControlledShutdownRequest(broker_id=2)
        )
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        await subject.loop.stop()
        await second.wait_until(lambda: second.is_active, 30_000)
        await second.until_idle(30_000)
        assert second.cluster is not None and second.cluster.epoch == 2
        found = await subject.store.get(nodes.CONTROLLER)
        assert found is not None and nodes.decode_controller(found[0]) == 2
        assert await second.wait_until(lambda: False, 1) is False
        await second.stop()


@on_loop
async def test_a_lost_session_is_followed_by_a_new_term(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        await subject.create("t", (1, 2))
        # As when ZooKeeper ends a session: its ephemeral nodes go, watches are dead, and a new session begins.
        store = subject.store
        await store.lose_session()
        for told in store.on_session_expired:
            told()
        for broker_id in (1, 2):
            await subject.join(broker_id)
        await subject.settle()
        assert subject.loop.cluster is not None and subject.loop.cluster.epoch == 2
        assert (await subject.state("t")).leader == 1
        # Watches work again.
        await subject.create("u", (2,))
        assert ("u", 0) in subject.brokers.led_by(2)


@on_loop
async def test_a_surprise_does_not_stop_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller_loop, "RETRY_DELAY_S", 0.001)
    async with running(tmp_path) as subject:
        real = decide
        failures = [RuntimeError("surprise")]

        def failing(*args: Any) -> Any:
            if failures:
                raise failures.pop()
            return real(*args)

        monkeypatch.setattr(controller_loop, "decide", failing)
        await subject.create("t", (1,))
        assert subject.brokers.led_by(1) == {("t", 0)}
        messages = [record.getMessage() for record in caplog.records if "could not handle" in record.getMessage()]
        assert messages == [
            "The controller could not handle a change of the node /brokers/topics: RuntimeError('surprise')."
            " It reads all nodes again in 0.001 s"
        ]


@on_loop
async def test_damaged_nodes_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as subject:
        await subject.store.create(nodes.topic_path("bad"), b"not json")
        await subject.store.create(nodes.broker_path(9), b"{}", ephemeral=True)
        await subject.store.create(f"{nodes.BROKER_IDS}/name", b"{}", ephemeral=True)
        await subject.create("good", (1,))
        assert subject.brokers.led_by(1) == {("good", 0)}
        assert "bad" in caplog.text and "/brokers/ids/9" in caplog.text


@on_loop
async def test_parents_that_another_controller_left_are_no_obstacle(tmp_path: Path) -> None:
    async with running(tmp_path) as subject:
        await subject.store.create(nodes.partition_path("t", 1), make_parents=True)
        data = nodes.encode_topic(TopicAssignment(b"i" * 16, {i: ReplicaAssignment((1,)) for i in range(3)}))
        await subject.store.set(nodes.topic_path("t"), data)
        await subject.settle()
        assert subject.brokers.led_by(1) == {("t", 0), ("t", 1), ("t", 2)}


@on_loop
async def test_large_writes_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_writes, "MAX_OPERATIONS", 7)
    async with running(tmp_path) as subject:
        sizes: list[int] = []
        real = subject.store.multi

        async def counted(operations: Any) -> Any:
            operations = list(operations)
            sizes.append(len(operations))
            return await real(operations)

        monkeypatch.setattr(subject.store, "multi", counted)
        await subject.create("t", *[(1,)] * 20)
        assert len(subject.brokers.led_by(1)) == 20
        await subject.store.create(nodes.delete_topic_path("t"))
        await subject.settle()
        assert await subject.store.children(nodes.TOPICS) == []
        assert max(sizes) <= 7 + 1  # and the check of the epoch


@on_loop
async def test_decisions_about_many_partitions_are_made_on_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_loop, "THREADED_FROM", 5)
    deciding: list[bool] = []

    def watched(*arguments: Any) -> Any:
        deciding.append(threading.current_thread() is threading.main_thread())
        return decide(*arguments)

    monkeypatch.setattr(controller_loop, "decide", watched)
    async with running(tmp_path) as subject:
        await subject.create("small", (1,))
        assert deciding
        assert all(deciding)
        await subject.create("large", *[(1,)] * 20)
        assert not all(deciding)
        assert len(subject.brokers.led_by(1)) == 21
        await subject.store.create(nodes.delete_topic_path("large"))
        await subject.settle()
        assert await subject.store.children(nodes.TOPICS) == ["small"]


def forget_watches(subject: Subject) -> None:
    """As of a controller that is new: it has set no watches yet."""
    for callback in subject.store.on_session_expired:
        callback()


@on_loop
async def test_many_topics_are_watched_in_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as subject:
        for index in range(40):
            await subject.create(f"t{index}", (1,))
        forget_watches(subject)
        await subject.store.delete(nodes.CONTROLLER)
        await subject.settle()
        # The next controller has read them all without watches, and set those since.
        for name in "t3", "t39":
            await subject.store.set(nodes.topic_path(name), b'{"version":1,"partitions":{"0":[1],"1":[2]}}')
        await subject.settle()
        assert subject.loop.cluster is not None
        assert [len(subject.loop.cluster.topics[name].partitions) for name in ("t3", "t4", "t39")] == [2, 1, 2]
        assert (await subject.state("t39", 1)).leader == 2


@on_loop
async def test_a_node_that_changes_before_it_is_watched_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 2) as subject:
        for index in range(40):
            await subject.create(f"t{index}", (1,))
        set_watches = ControllerReader.set_watches
        written: list[str] = []

        async def write_first(reader: ControllerReader) -> None:
            if not written:
                written.append("t5")
                await subject.store.set(nodes.topic_path("t5"), b'{"version":1,"partitions":{"0":[1],"1":[2]}}')
            await set_watches(reader)

        monkeypatch.setattr(ControllerReader, "set_watches", write_first)
        forget_watches(subject)
        await subject.store.delete(nodes.CONTROLLER)
        await subject.settle()
        assert written
        assert subject.loop.cluster is not None
        assert len(subject.loop.cluster.topics["t5"].partitions) == 2


@on_loop
async def test_unclean_elections_are_enabled_while_there_is_no_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 2, 3) as subject:
        for name in "t", "u":
            await subject.create(name, (2,))
            await subject.loop.reassign({(name, 0): (2, 3)})  # 3 is a replica now, and not in sync
        await subject.store.delete(nodes.broker_path(2))
        await subject.settle()
        assert [(await subject.state(name)).leader for name in ("t", "u")] == [-1, -1]

        async def switch_on(entity: str) -> None:
            config = nodes.encode_config({"unclean.leader.election.enable": "true"})
            await subject.store.create(f"{nodes.CONFIG}/{entity}", config)
            change = nodes.encode_config_change(entity)
            await subject.store.create(nodes.CONFIG_CHANGE_PREFIX, change, sequential=True)

        async def led_by(name: str, leader: int) -> None:
            async with asyncio.timeout(30):
                while (await subject.state(name)).leader != leader:
                    await subject.settle()

        # Of one topic, then of all that the brokers' default is for.
        assert subject.loop.unclean_elections_count == 0
        await switch_on("topics/t")
        await led_by("t", 3)
        assert subject.loop.unclean_elections_count == 1
        state = await subject.state("t")
        assert (state.isr, state.recovering) == ((3,), True)
        assert (await subject.state("u")).leader == -1
        await switch_on("brokers/<default>")
        await led_by("u", 3)
        assert subject.loop.unclean_elections_count == 2


@pytest.mark.parametrize("extra", ["", "/partitions/0/more", "/more", "/partitions/7"])
@on_loop
async def test_a_deleted_topic_leaves_no_node(tmp_path: Path, extra: str) -> None:
    async with running(tmp_path) as subject:
        await subject.create("t", (1,), (1,))
        if extra:
            await subject.store.create(nodes.topic_path("t") + extra)
        await subject.store.create(nodes.delete_topic_path("t"))
        await subject.settle()
        assert await subject.store.exists(nodes.topic_path("t")) is None
        assert await subject.store.children(nodes.DELETE_TOPICS) == []
