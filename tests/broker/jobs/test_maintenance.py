"""jobs.maintenance: flush, retention, checkpoints and forgotten producers, on the logs of a real broker."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from gregor.broker.jobs import maintenance
from gregor.broker.jobs.background import Background
from gregor.broker.jobs.maintenance import Maintenance, flush_log, flush_to
from gregor.broker.jobs.open_transactions import GRACE_MS, OWN_GRACE_MS, OpenTransactions
from gregor.broker.jobs.turns import LoopGate
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import (
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, collect
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log
from tests.broker.harness import Harness, batch, produce_request, running
from tests.storage.folders.test_move import begun, copied
from tests.storage.logs import NOW_MS, log_config
from tests.storage.logs import batch as memory_batch
from tests.storage.memory_files import MemoryFiles

ResultT = TypeVar("ResultT")


class Removals(Background):
    """Keeps the files that it should remove."""

    def __init__(self) -> None:
        super().__init__(LoopGate())
        self.asked: list[tuple[list[str], int]] = []

    def remove_later(self, paths: Iterable[str], delay_ms: int) -> None:
        self.asked.append((list(paths), delay_ms))


@pytest.fixture
def background(harness: Harness) -> Iterator[Removals]:
    background = Removals()
    yield background
    harness.run(background.close())


@pytest.fixture
def jobs(harness: Harness, background: Removals) -> Maintenance:
    """The jobs, to be run by hand."""
    return Maintenance(harness.config, harness.broker.logs, background, harness.broker.now_ms)


def log_of(harness: Harness, topic: str, partition: int = 0) -> Log:
    log = harness.broker.logs.get(topic, partition)
    assert log is not None
    return log


def append(harness: Harness, topic: str) -> None:
    """As the broker itself writes."""
    partition = harness.broker.replicas.get(topic, 0)
    assert partition is not None
    partition.append(bytearray(batch(b"x")), harness.broker.now_ms(), -1, from_client=False)


def test_draining_an_iterator_gives_others_their_turn(harness: Harness) -> None:
    def slow() -> Iterator[int]:
        for number in range(20):
            time.sleep(0.0005)
            yield number

    async def measure() -> tuple[list[int], int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        done = await harness.broker.background.run_steps(collect(slow()))
        counting.cancel()
        return done, turns

    done, turns = harness.run(measure())
    assert done == list(range(20))
    assert turns >= 5


def test_flush_ms(harness: Harness, jobs: Maintenance, topic: str) -> None:
    harness.create_topic(topic, flush_ms="1000000")
    log = log_of(harness, topic)
    harness.produce(topic, b"x")
    harness.run(jobs.flush())
    assert log.offsets.unflushed_messages == 1
    harness.alter_topic(topic, flush_ms="0")
    harness.run(jobs.flush())
    assert log.offsets.unflushed_messages == 0


@pytest.mark.parametrize("whole", [False, True])
def test_a_truncation_withdraws_what_a_checkpoint_vouches_for(
    harness: Harness, jobs: Maintenance, topic: str, whole: bool
) -> None:
    def recovery_point() -> int | None:
        text = (Path(log_of(harness, topic).directory).parent / "recovery-point-offset-checkpoint").read_text()
        found = [line.split() for line in text.splitlines()[2:]]
        return next((int(offset) for name, _, offset in found if name == topic), None)

    harness.create_topic(topic)
    log = log_of(harness, topic)
    for _ in range(5):
        harness.produce(topic, b"x")
    log.flusher.flush()
    harness.run(jobs.checkpoint())
    assert recovery_point() == 5
    if whole:
        log.truncate_fully_and_start_at(2)
    else:
        log.truncate_to(2)
    for _ in range(5):
        append(harness, topic)
    harness.run(jobs.flush())
    assert recovery_point() == 2
    assert not log.offsets.recovery_point_fell


def test_flush_messages_counts_for_what_the_broker_writes(harness: Harness, jobs: Maintenance, topic: str) -> None:
    harness.create_topic(topic, flush_messages="2")
    log = log_of(harness, topic)
    for unflushed in (1, 0):
        append(harness, topic)
        harness.run(jobs.flush())
        assert log.offsets.unflushed_messages == unflushed


def test_who_waits_for_the_disk_shares_a_flush(
    harness: Harness, background: Removals, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    for _ in range(20):
        harness.produce(topic, b"x")
    log = log_of(harness, topic)
    plans: list[int] = []

    async def counted(log: Log, background: Background, now_ms: int, *, rolled_only: bool = False) -> None:
        plans.append(log.log_end_offset)
        if len(plans) == 1:
            append(harness, topic)
        await flush_log(log, background, now_ms, rolled_only=rolled_only)

    monkeypatch.setattr("gregor.broker.jobs.maintenance.flush_log", counted)

    async def all_wait() -> None:
        await asyncio.gather(*[flush_to(log, offset, background, 0) for offset in (1, 20, 21, 20, 21, 5)])

    harness.run(all_wait())
    assert log.recovery_point == 21
    assert len(plans) <= 2
    assert background.flushes == {}
    harness.run(flush_to(log, 21, background, 0))
    assert len(plans) <= 2


def test_a_waiter_that_gives_up_leaves_the_others_their_flush(
    harness: Harness, background: Removals, topic: str
) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"x")
    log = log_of(harness, topic)

    async def test() -> None:
        first, second = [asyncio.ensure_future(flush_to(log, 1, background, 0)) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        await second

    harness.run(test())
    assert log.recovery_point == 1
    assert background.flushes == {}


def test_a_flush_that_fails_fails_for_all_who_wait(
    harness: Harness, background: Removals, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"x")
    log = log_of(harness, topic)

    def sync(descriptor: int) -> None:
        raise OSError(13, "Permission denied")  # one that is not the whole disk's

    async def all_wait() -> list[BaseException | None]:
        waits = [flush_to(log, 1, background, 0) for _ in range(3)]
        return await asyncio.gather(*waits, return_exceptions=True)

    monkeypatch.setattr(os, "fsync", sync)
    outcomes = harness.run(all_wait())
    assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ] * 3


def test_rolled_segments_are_flushed_and_the_active_one_is_not(harness: Harness, jobs: Maintenance, topic: str) -> None:
    harness.create_topic(topic, internal_segment_bytes="2000")
    log = log_of(harness, topic)
    for _ in range(4):
        harness.produce(topic, bytes(900))
    assert log.segments_count == 2
    harness.run(jobs.flush())
    assert (log.recovery_point, log.offsets.unflushed_messages) == (2, 2)


def test_a_topic_deleted_while_others_are_flushed_is_passed_over(
    harness: Harness, jobs: Maintenance, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        harness.create_topic(name, flush_ms="0")
        harness.produce(name, b"x")

    async def flush_and_delete(log: Log, background: Background, now_ms: int, *, rolled_only: bool = False) -> None:
        await flush_log(log, background, now_ms, rolled_only=rolled_only)
        if log.topic == names[0]:
            harness.broker.logs.remove(names[1], 0)

    monkeypatch.setattr("gregor.broker.jobs.maintenance.flush_log", flush_and_delete)
    harness.run(jobs.flush())
    assert [log_of(harness, name).offsets.unflushed_messages for name in (names[0], names[2])] == [0, 0]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert not [text for text in errors if topic in text], "the disk watch may still report the log of an earlier test"


def test_a_log_that_cannot_be_flushed_does_not_keep_the_others_from_it(
    harness: Harness, jobs: Maintenance, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        harness.create_topic(name, flush_ms="0")
        harness.produce(name, b"x")
    bad = log_of(harness, names[0]).directory

    def sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(bad):
            raise OSError(13, "Permission denied")  # one that is not the whole disk's

    monkeypatch.setattr(os, "fsync", sync)
    harness.run(jobs.flush())
    assert [log_of(harness, name).offsets.unflushed_messages for name in names[1:]] == [0, 0]
    harness.until(lambda: (names[0], 0) in harness.broker.logs.failed)
    assert harness.broker.logs.get(names[0], 0) is None
    assert names[0] in caplog.text
    assert harness.produce(names[0], b"y").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.run(jobs.flush())  # it is not tried again


def test_retention_by_size_with_the_topics_own_delay(
    harness: Harness, jobs: Maintenance, background: Removals, topic: str
) -> None:
    harness.create_topic(topic, internal_segment_bytes="1000", retention_bytes="1500", file_delete_delay_ms="1234")
    for number in range(6):
        harness.produce(topic, b"%d" % number * 900)
    log = log_of(harness, topic)
    harness.run(jobs.retain())
    assert log.log_start_offset == 4
    ((paths, delay_ms),) = background.asked
    assert delay_ms == 1234
    assert all(os.path.dirname(path) == log.directory and path.endswith(".deleted") for path in paths)
    assert all(os.path.exists(path) for path in paths)
    assert [record.offset for record in harness.records(topic, 4)] == [4, 5]


def test_a_move_that_ends_before_the_turn_of_retention_costs_no_round() -> None:
    """The log lies in another folder then than when the round began."""
    config = log_config(segment_bytes=300, retention_bytes=100, file_delete_delay_ms=1234)
    manager, move = begun(MemoryFiles(), segment_bytes=300)
    copied(move)
    for log in (move.log, manager.get_or_create("u", 0, ZERO_UUID, config)):
        log.configure(config)
        while log.log_end_offset < 10:
            log.append_as_leader(memory_batch(1), 0, NOW_MS)
        log.offsets.restore_high_watermark(10)

    class Busy(Removals):
        async def run_steps(self, steps: Steps[ResultT]) -> ResultT:
            manager.finish_move(move)
            return await super().run_steps(steps)

    async def test() -> list[tuple[str, int]]:
        background = Busy()
        await Maintenance(BrokerConfig({"log.dirs": "/home"}), manager, background, lambda: NOW_MS).retain()
        await background.close()
        return [(os.path.dirname(paths[0]), delay_ms) for paths, delay_ms in background.asked]

    removed = asyncio.run(test())
    assert removed == [(log.directory, 1234) for log in manager.logs.values()]
    assert removed[0] == (f"{move.folder.path}/t-0", 1234)


def test_retention_by_time(harness: Harness, jobs: Maintenance, background: Removals, topic: str) -> None:
    harness.create_topic(topic, internal_segment_bytes="1000", retention_ms="3600000")
    now_ms = harness.broker.now_ms()
    for age_ms in (7_200_000, 7_200_000, 0):
        harness.ask(produce_request(topic, batch(bytes(900), timestamp_ms=now_ms - age_ms)), 9)
    harness.run(jobs.retain())
    assert log_of(harness, topic).log_start_offset == 2
    assert len(background.asked) == 1


def test_readers_of_removed_segments_are_told_where_the_log_begins(
    harness: Harness, jobs: Maintenance, topic: str
) -> None:
    harness.create_topic(topic, internal_segment_bytes="1000", retention_bytes="0")
    for _ in range(3):
        harness.produce(topic, bytes(900))
    harness.run(jobs.retain())
    log = log_of(harness, topic)
    assert log.log_start_offset > 0
    assert harness.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert harness.fetch(topic, log.log_end_offset).log_start_offset == log.log_start_offset


def test_checkpoints(harness: Harness, jobs: Maintenance, topic: str) -> None:
    harness.create_topic(topic, flush_ms="0")
    for _ in range(3):
        harness.produce(topic, b"x")
    harness.run(jobs.flush())
    harness.run(jobs.checkpoint_high_watermarks())
    harness.run(jobs.checkpoint())
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert f"{topic} 0 3" in (harness.folder / name).read_text().splitlines()


def test_producers_are_forgotten(harness: Harness, background: Removals, topic: str) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    log = log_of(harness, topic)
    later_ms = harness.broker.now_ms() + harness.config["producer.id.expiration.ms"] + 1
    for clock_ms, known in ((harness.broker.now_ms(), {5}), (later_ms, set())):
        jobs = Maintenance(harness.config, harness.broker.logs, background, lambda now_ms=clock_ms: now_ms)  # type: ignore[misc]
        harness.run(jobs.expire_producers())
        assert set(log.producers.entries) == known


def append_transactional(harness: Harness, topic: str, producer_id: int) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    log_of(harness, topic).append_as_leader(bytearray(batch(b"x", **fields)), 0, harness.broker.now_ms())


def test_open_transactions_are_checked_regularly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the job that forgets producers: it runs every ten minutes."""
    rounds: list[OpenTransactions] = []
    monkeypatch.setattr(maintenance, "CHECK_S", 0.001)
    monkeypatch.setattr(OpenTransactions, "end_round", lambda one: rounds.append(one))
    with running(tmp_path) as harness:
        harness.until(lambda: len(rounds) >= 3)


def test_timeout_of_an_open_transaction_is_that_of_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout_ms = 54_321
    found: dict[int, int] = {}
    init = InitProducerIdRequest(transactional_id="billing", transaction_timeout_ms=timeout_ms)
    monkeypatch.setattr(maintenance, "CHECK_S", 0.001)
    monkeypatch.setattr(OpenTransactions, "set_timeouts", lambda one, timeouts: found.update(timeouts))
    with running(tmp_path) as harness:
        harness.create_topic("t")
        harness.ask(FindCoordinatorRequest(key="billing", key_type=1), 3)
        answers: list[InitProducerIdResponse] = []

        def ready() -> bool:
            answers.append(harness.ask(init, 5))
            return not answers[-1].error_code

        harness.until(ready)
        append_transactional(harness, "t", answers[-1].producer_id)
        harness.until(lambda: found == {answers[-1].producer_id: timeout_ms})


@pytest.mark.parametrize("leads", [True, False])
def test_leader_warns_of_a_transaction_that_hangs(
    harness: Harness, background: Removals, topic: str, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic(topic)
    append_transactional(harness, topic, 7)
    begin_ms = harness.broker.now_ms()
    clock_ms = begin_ms
    jobs = Maintenance(
        harness.config, harness.broker.logs, background, lambda: clock_ms, is_led=lambda topic, partition: leads
    )
    harness.run(jobs.check_open_transactions())
    clock_ms = begin_ms + harness.config["transaction.max.timeout.ms"] + GRACE_MS + 1
    caplog.clear()
    harness.run(jobs.check_open_transactions())
    assert [message.partition(",")[0] for message in caplog.messages] == [
        f"{topic}-0: the transaction of producer 7"
    ] * leads


def test_leader_warns_by_the_timeout_of_the_producer(
    harness: Harness, background: Removals, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    timeout_ms = 5_000
    requested: list[set[int]] = []

    async def timeouts_of(producer_ids: Collection[int]) -> dict[int, int]:
        requested.append(set(producer_ids))
        return {7: timeout_ms}

    harness.create_topic(topic)
    for producer_id in (7, 8):
        append_transactional(harness, topic, producer_id)
    clock_ms = harness.broker.now_ms()
    jobs = Maintenance(
        harness.config,
        harness.broker.logs,
        background,
        lambda: clock_ms,
        is_led=lambda name, partition: name == topic,
        timeouts_of=timeouts_of,
    )
    harness.run(jobs.check_open_transactions())
    clock_ms += 1
    harness.run(jobs.check_open_transactions())
    assert requested == [{7, 8}]
    clock_ms += timeout_ms + OWN_GRACE_MS
    caplog.clear()
    harness.run(jobs.check_open_transactions())
    assert [message.partition(",")[0] for message in caplog.messages] == [f"{topic}-0: the transaction of producer 7"]
    assert requested == [{7, 8}, {8}]


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "bad disk"), OSError(28, "full"), KeyError("x")]
)
def test_a_job_that_fails_is_tried_again(
    harness: Harness,
    jobs: Maintenance,
    error: Exception,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0

    async def job() -> None:
        nonlocal calls
        calls += 1
        raise error

    monkeypatch.setattr(jobs, "flush", job)
    monkeypatch.setattr("gregor.broker.jobs.maintenance._FLUSH_CHECK_S", 0.0)
    harness.loop.call_soon(jobs.start)
    harness.until(lambda: calls > 1)
    assert "job failed" in caplog.text


def test_the_jobs_run_by_themselves_and_files_go(tmp_path: Path) -> None:
    settings = {"log_retention_check_interval_ms": "10", "log_segment_delete_delay_ms": "0"}
    harness = Harness(tmp_path, **settings).start()
    harness.create_topic("t", internal_segment_bytes="1000", retention_bytes="100")
    for _ in range(4):
        harness.produce("t", bytes(900))
    harness.until(lambda: len(list((tmp_path / "t-0").glob("*.log*"))) == 1)
    harness.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
    harness.until(lambda: not list(tmp_path.glob("t-0*")))
    harness.stop()


def test_offsets_of_removed_partitions_leave_the_checkpoints_before_one_is_made_anew(
    harness: Harness, jobs: Maintenance, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic, 3)
    append(harness, topic)
    logs = harness.broker.logs
    logs.checkpoints.write_all()
    file = Path(logs.folders[0].path) / "replication-offset-checkpoint"
    assert f"{topic} 0 " in file.read_text()
    forget_removed = LogManager.forget_removed
    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "forget_removed", lambda _: iter(()))  # the broker's own job
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=30_000)
        harness.ask(deletion, 6)
        assert {key for key in logs.checkpoints.stale_keys if key[0] == topic} == {(topic, index) for index in range(3)}
        # A log that is removed while the files are written is left for the next run.
        steps = forget_removed(logs)
        while (call := next(steps)) is None:
            pass
        logs.checkpoints.removed((topic, 0))
        with pytest.raises(StopIteration):
            steps.send(call())
        assert logs.checkpoints.stale_keys
    harness.run(jobs.forget_removed())
    assert not logs.checkpoints.stale_keys
    assert f"{topic} " not in file.read_text()
    harness.create_topic(topic, 3)
    assert log_of(harness, topic).high_watermark == 0


def test_logs_are_searched_for_flushes_and_truncations_in_steps(
    harness: Harness, jobs: Maintenance, background: Removals, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("many", partitions=2 * ITEMS_PER_STEP, flush_ms="1000000")
    harness.create_topic("others", partitions=2 * ITEMS_PER_STEP)
    steps_of_searches = []

    async def run_steps(steps: Steps[ResultT]) -> ResultT:
        for count in itertools.count():
            try:
                next(steps)
            except StopIteration as end:
                steps_of_searches.append(count)
                found: ResultT = end.value
                return found
        raise AssertionError

    monkeypatch.setattr(background, "run_steps", run_steps)
    harness.run(jobs.flush())
    assert steps_of_searches == [2, 2], "the logs without a need for a check are not visited"
