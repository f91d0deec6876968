"""The runtime with a shard that does next to nothing: append, replay, commit, load."""

import asyncio
import itertools
from typing import Any

import pytest

from gregor.coordinator import runtime as runtime_module
from gregor.coordinator.replaying import BYTES_PER_STEP
from gregor.coordinator.result import Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.batch import build_batch
from tests.coordinator.machinery import START_MS
from tests.coordinator.runtime_bench import COMMIT_TIMEOUT_MS, Bench, ListShard, code_of

# --- operations


def test_records_are_appended_replayed_and_answered_at_commit() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.held = True
        task = bench.write("a", "b")
        assert shard.replayed == [(0, "a", -1), (1, "b", -1)]
        assert not task.done()
        bench.log.commit()
        bench.settle()
        assert task.result() == "done"


def test_operations_get_the_wall_clock() -> None:
    with Bench() as bench:
        bench.load()
        bench.settle(1_234)
        task = bench.start(lambda _shard, now_ms: Result(now_ms))
        assert task.result() == START_MS + 1_235


def test_a_read_waits_for_what_it_may_have_seen() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        bench.write("a")
        read = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        assert not read.done()
        bench.log.commit()
        bench.settle()
        assert read.result() == 1
        bench.log.held = False
        assert bench.start(lambda shard, _now: Result(len(shard.replayed))).result() == 1


def test_a_parked_answer_does_not_wait_for_commits_of_others() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        bench.write("a")
        parked: Deferred[str] = Deferred()
        task = bench.start(lambda _shard, _now: Result(parked))
        parked.complete("soft")
        bench.settle()
        assert task.result() == "soft"


def test_released_answers_wait_for_the_commit() -> None:
    with Bench() as bench:
        bench.load()
        first, second = Deferred[str](), Deferred[str]()
        waiting = bench.start(lambda _shard, _now: Result(first))
        bench.log.held = True
        releasing = bench.write("a", response=second, releases=[(first, "1"), (second, "2")])
        assert not (waiting.done() or releasing.done())
        bench.log.commit()
        bench.settle()
        assert (waiting.result(), releasing.result()) == ("1", "2")
        third: Deferred[str] = Deferred()
        waiting = bench.start(lambda _shard, _now: Result(third))
        bench.write(releases=[(third, "3")])
        assert waiting.result() == "3"


def test_a_commit_that_takes_too_long_is_reported_and_forgotten() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.held = True
        task = bench.write("a")
        bench.settle(COMMIT_TIMEOUT_MS)
        assert code_of(task) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(shard.replayed) == 1
        bench.log.commit()
        bench.log.held = False
        assert bench.write("b").result() == "done"


def test_reads_wait_no_longer_than_the_first_write_and_then_not_at_all_until_something_is_committed() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True

        def read() -> "asyncio.Task[Any]":
            return bench.start(lambda shard, _now: Result(len(shard.replayed)))

        first = bench.write("a")
        bench.settle(COMMIT_TIMEOUT_MS - 1_000)
        second = bench.write("b")
        waiting = [read(), read()]
        bench.settle(1_000)
        assert code_of(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [task.result() for task in waiting] == [2, 2]
        assert not second.done()
        assert read().result() == 2
        bench.settle(COMMIT_TIMEOUT_MS - 1_000)
        assert code_of(second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        third = bench.write("c")
        assert (third.done(), read().result()) == (False, 3)
        bench.log.commit()
        bench.settle()
        assert third.result() == "done"
        fourth = bench.write("d")
        waits = read()
        assert not (fourth.done() or waits.done())
        bench.log.commit()
        bench.settle()
        assert (fourth.result(), waits.result()) == ("done", 4)


def test_a_read_after_a_change_that_nobody_waits_for_does_not_wait_for_ever() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        bench.runtime.run_everywhere(lambda _shard: Result(records=[Record("all", None)]))
        read = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        assert not read.done()
        bench.settle(COMMIT_TIMEOUT_MS)
        assert read.result() == 1


def test_why_the_log_takes_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with Bench() as bench:
        bench.load()
        for code, lines in [("NOT_ENOUGH_REPLICAS", 1), ("NOT_ENOUGH_REPLICAS", 0), ("MESSAGE_TOO_LARGE", 1)]:
            caplog.clear()
            bench.log.failures.append(ErrorCode[code])
            assert bench.write("a").exception() is not None
            assert len([line for line in caplog.records if line.levelname == "WARNING"]) == lines
        assert bench.write("a").result() == "done"
        bench.log.failures.append(ErrorCode.MESSAGE_TOO_LARGE)
        caplog.clear()
        assert bench.write("a").exception() is not None
        assert "records cannot be appended" in caplog.text


def test_a_commit_that_will_never_be_is_reported_with_the_reason() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        task = bench.write("a")
        for _, _, callback in bench.log.waiting:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        bench.settle()
        assert code_of(task) is ErrorCode.NOT_COORDINATOR


def test_with_too_few_in_sync_reads_are_answered_and_writes_are_not() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        written = bench.write("a")
        read = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        for _, _, callback in bench.log.waiting:
            callback(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        bench.settle()
        assert code_of(written) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert read.result() == 1


def test_a_log_that_is_gone_between_append_and_commit_is_not_ours_any_more() -> None:
    with Bench() as bench:
        bench.load()

        def gone(*_: object) -> None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        bench.log.held = True
        bench.log.when_committed = gone  # type: ignore[method-assign]
        assert code_of(bench.write("a")) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("log_error", "error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_nothing_is_replayed_when_nothing_was_appended(log_error: ErrorCode, error: ErrorCode) -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.failures.append(log_error)
        led_back: list[ErrorCode] = []
        released: Deferred[str] = Deferred()
        task = bench.write("a", releases=[(released, "never")], on_failure=led_back.append)
        assert code_of(task) is error
        assert isinstance(released.error, KafkaError)
        assert (led_back, released.error.code, shard.replayed) == ([error], error, [])
        assert bench.write("b").result() == "done"


def test_a_record_that_cannot_be_encoded_is_not_appended() -> None:
    with Bench() as bench:
        shard = bench.load()
        assert code_of(bench.write("a", "too long")) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (shard.replayed, bench.log.appends) == ([], 0)


def test_an_operation_or_append_that_breaks_is_an_error_of_the_server() -> None:
    with Bench() as bench:
        bench.load()

        def broken(_shard: ListShard, _now_ms: int) -> Result:
            raise RuntimeError("a bug")

        assert code_of(bench.start(broken)) is ErrorCode.UNKNOWN_SERVER_ERROR
        bench.log.failures = None  # type: ignore[assignment]
        bench.log.end = None  # type: ignore[assignment]
        led_back: list[ErrorCode] = []
        assert code_of(bench.write("a", on_failure=led_back.append)) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert led_back == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_what_need_not_be_atomic_is_spread_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "MAX_BATCH_BYTES", 100)
    with Bench() as bench:
        shard = bench.load()
        keys = [f"key{number}" for number in range(10)]
        bench.write(*keys, atomic=False)
        assert bench.log.appends == 3
        assert shard.replayed == [(number, key, -1) for number, key in enumerate(keys)]
        bench.write("x" * 500, atomic=False)
        bench.write(*keys)
        assert bench.log.appends == 5


def test_whoever_hangs_up_does_not_disturb() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        task = bench.write("a")
        task.cancel()
        bench.settle()
        bench.log.commit()
        bench.settle()
        assert task.cancelled()


# --- timers


def test_timers_run_operations_whose_records_are_written() -> None:
    with Bench() as bench:
        shard = bench.load()
        seen: list[int] = []

        def operation(now_ms: int) -> Result:
            seen.append(now_ms)
            return Result(records=[Record("timed", None)])

        shard.timers.schedule("key", 100, operation)
        bench.settle(99)
        assert shard.replayed == []
        bench.settle(1)
        assert (shard.replayed, seen) == ([(0, "timed", -1)], [START_MS + 101])


def test_timers_that_fail_break_nothing() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        shard.timers.schedule("fails", 10, lambda _now: Result(records=[Record("a", None)]))
        shard.timers.schedule("breaks", 20, lambda _now: [][0])
        bench.settle(30)
        assert bench.write("b").result() == "done"


def test_timers_end_with_the_shard() -> None:
    with Bench() as bench:
        shard = bench.load()
        shard.timers.schedule("key", 10, lambda _now: Result(records=[Record("late", None)]))
        bench.runtime.resign(0)
        bench.settle(100)
        assert bench.log.appends == 0


# --- elections


def test_a_partition_is_loaded_from_its_log() -> None:
    with Bench() as bench:
        bench.load()
        bench.write("a", "b")
        bench.write("c")
        bench.runtime.resign(0)
        assert bench.shards[0].unloaded == [ErrorCode.NOT_COORDINATOR]
        shard = bench.load()
        assert shard.replayed == [(0, "a", -1), (1, "b", -1), (2, "c", -1)]
        assert len(shard.loaded_at) == 1


def test_what_was_loaded_is_shown_once_it_is_committed() -> None:
    with Bench() as bench:
        bench.load_what_is_not_committed()
        loaded = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        written = bench.write("b")
        read = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        assert not (loaded.done() or written.done() or read.done())
        bench.log.commit()
        bench.settle()
        assert (loaded.result(), written.result(), read.result()) == (1, "done", 2)


def test_what_was_loaded_is_shown_after_one_wait_without_a_commit() -> None:
    with Bench() as bench:
        bench.load_what_is_not_committed()
        first = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        bench.settle(COMMIT_TIMEOUT_MS)
        second = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        assert (first.result(), second.result()) == (1, 1)


def test_whoever_waits_for_a_commit_is_told_when_the_partition_goes() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        task = bench.write("a")
        bench.runtime.resign(0)
        bench.settle()
        assert code_of(task) is ErrorCode.NOT_COORDINATOR


def test_old_news_is_ignored() -> None:
    with Bench() as bench:
        shard = bench.load(epoch=5)
        bench.runtime.resign(0, 5)
        bench.runtime.resign(7)
        assert bench.elect(epoch=4) is None
        assert bench.elect(epoch=5) is None
        assert bench.runtime.shard(0) is shard
        bench.runtime.resign(0, 6)
        assert shard.unloaded == [ErrorCode.NOT_COORDINATOR]


def test_a_partition_is_loaded_again_in_a_newer_epoch() -> None:
    with Bench() as bench:
        before = bench.load(epoch=5)
        bench.write("a")
        bench.log.held = True
        waiting = bench.write("b")
        assert bench.elect(epoch=7) is not None
        bench.settle(1)
        assert (waiting.done(), before.unloaded) == (True, [ErrorCode.NOT_COORDINATOR])
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            waiting.result()
        shard = bench.runtime.shard(0)
        assert shard is not before
        assert [key for _, key, _ in shard.replayed] == ["a", "b"]
        assert shard.context.leader_epoch == 7
        bench.log.commit()
        assert bench.elect(epoch=7) is None


def test_a_load_begins_again_in_a_newer_epoch() -> None:
    with Bench() as bench:
        bench.load()
        bench.write("a")
        bench.runtime.resign(0)
        bench.log.load_gate = asyncio.Event()
        first = bench.elect(epoch=5)
        bench.settle()
        second = bench.elect(epoch=7)
        assert first is not None and second is not None
        bench.log.load_gate.set()
        bench.settle(1)
        assert (first.cancelled(), bench.shards[1].loaded_at) == (True, [])
        assert bench.runtime.shard(0).context.leader_epoch == 7


def test_a_load_stops_when_the_partition_goes() -> None:
    with Bench() as bench:
        bench.load()
        bench.write("a")
        bench.runtime.resign(0)
        bench.log.load_gate = asyncio.Event()
        load = bench.elect()
        assert load is not None
        bench.settle()
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            bench.runtime.shard(0)
        bench.runtime.resign(0)
        bench.settle()
        assert load.cancelled()
        assert bench.shards[-1].loaded_at == []


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), RuntimeError("a bug")])
def test_a_load_that_fails_can_be_tried_again(error: Exception) -> None:
    with Bench() as bench:
        bench.log.load_error = error
        bench.elect()
        bench.settle()
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            bench.runtime.shard(0)
        assert list(bench.runtime.loaded()) == []
        bench.log.load_error = None
        assert bench.load() is bench.shards[1]


def test_operations_for_all_run_on_each_shard_after_its_load() -> None:
    with Bench() as bench:
        bench.load(0)
        bench.elect(1)
        bench.log.load_error = RuntimeError("a bug")
        bench.elect(2)
        bench.runtime.run_everywhere(lambda _shard: Result(records=[Record("all", None)]))
        bench.settle(1)
        assert [len(shard.replayed) for shard in bench.shards] == [1, 1, 0]


def test_loading_lets_others_have_their_turn() -> None:
    with Bench(clock=itertools.count().__next__) as bench:  # each step uses its turn up
        for partition in (0, 1):
            bench.log.append(partition, [(b"%d" % number, bytes(BYTES_PER_STEP)) for number in range(60)])
            bench.elect(partition)
        turns: list[tuple[int, int]] = []

        async def watch() -> None:
            while any(len(shard.replayed) < 60 for shard in bench.shards):
                turns.append((len(bench.shards[0].replayed), len(bench.shards[1].replayed)))
                await asyncio.sleep(0)

        bench.loop.run_until_complete(watch())
        assert len(turns) > 100
        # Each turn of the loop runs one step, and no partition is left behind.
        assert all(sum(later) - sum(now) <= 1 for now, later in itertools.pairwise(turns))
        assert max(abs(one - other) for one, other in turns) < 10


def test_timers_of_a_long_load_start_in_turns_and_fire_after_it() -> None:
    names = [str(number) for number in range(20)]
    with Bench(clock=itertools.count().__next__) as bench:
        bench.timers_to_start = names
        bench.elect()
        (shard,) = bench.shards
        bench.settle()
        with pytest.raises(KafkaError):  # it is loading still
            bench.runtime.shard(0)
        bench.settle(1)
        for _ in names:
            bench.settle()
        assert sorted(shard.fired) == sorted((name, 1) for name in names)
        assert sorted(key for _, key, _ in shard.replayed) == sorted(names)


def test_a_long_log_is_read_in_pieces() -> None:
    with Bench() as bench:
        bench.load()
        for number in range(30):
            bench.write(f"key{number}", "x" * 100)
        bench.runtime.resign(0)
        assert len(bench.load().replayed) == 60


def test_records_that_cannot_be_read_are_skipped() -> None:
    with Bench() as bench:
        batch = build_batch([(b"a", None), (None, b"?"), (b"unknown", None), (b"b", None)], timestamp_ms=START_MS)
        bench.log.add_batch(0, bytes(batch))
        assert [key for _, key, _ in bench.load().replayed] == ["a", "b"]


def test_a_log_with_a_broken_batch_is_not_loaded() -> None:
    with Bench() as bench:
        bench.log.add_batch(0, bytes(build_batch([(b"a", None)], timestamp_ms=START_MS)))
        bench.log.batches[0] = [bench.log.batches[0][0][:16] + b"\7" + bench.log.batches[0][0][17:]]
        bench.log.load_error = None
        bench.log.read = lambda *_: _return(bench.log.batches[0][0])  # type: ignore[method-assign]
        bench.elect()
        bench.settle()
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            bench.runtime.shard(0)


async def _return(data: bytes) -> bytes:
    return data


def test_transactions_and_their_markers_are_told_apart() -> None:
    with Bench() as bench:
        header: dict[str, Any] = {"timestamp_ms": START_MS, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
        batches = [
            build_batch([(b"a", None)], **header, transactional=True),
            build_batch([(b"\0\0\0\1", bytes(6))], **header, transactional=True, control=True, base_offset=1),
            build_batch([(b"\0\0\0\0", bytes(6))], **header, transactional=True, control=True, base_offset=2),
            build_batch([(b"\0\0\0\7", b"")], **header, transactional=True, control=True, base_offset=3),
            build_batch([(b"b", None)], timestamp_ms=START_MS, base_offset=4),
        ]
        for batch in batches:
            bench.log.add_batch(0, bytes(batch))
        assert bench.load().replayed == [(0, "a", 9), (-1, "commit", 9), (-1, "abort", 9), (4, "b", -1)]
