"""Services of the runtime to its shards: a call at commit, operations to run later, leader epoch, awaited values."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gregor.coordinator.result import ALL_RECORDS, Record, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from tests.coordinator.runtime_bench import COMMIT_TIMEOUT_MS, Bench, ListShard, code_of


def record(key: str) -> Result:
    return Result(records=[Record(key, None)])


def keys(shard: ListShard) -> list[str]:
    return [key for _, key, _ in shard.replayed]


# --- after_commit


def test_the_call_at_commit_comes_after_the_answer() -> None:
    with Bench() as bench:
        bench.load()
        events: list[str] = []
        answer: Deferred[None] = Deferred()
        answer.then(lambda _: events.append("answer"))
        bench.log.held = True
        bench.write("a", response=answer, releases=[(answer, None)], after_commit=lambda: events.append("commit"))
        assert events == []
        bench.log.commit()
        assert events == ["answer", "commit"]


def test_the_call_at_commit_comes_however_late() -> None:
    with Bench() as bench:
        bench.load()
        events: list[str] = []
        bench.log.held = True
        task = bench.write("a", after_commit=lambda: events.append("commit"))
        bench.settle(2 * COMMIT_TIMEOUT_MS)
        assert code_of(task) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert events == []
        bench.log.commit()
        assert events == ["commit"]


def test_too_few_in_sync_do_not_undo_a_commit() -> None:
    with Bench() as bench:
        bench.load()
        events: list[str] = []
        bench.log.held = True
        bench.write("a", after_commit=lambda: events.append("commit"))
        for _, _, callback in bench.log.waiting:
            callback(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        assert events == ["commit"]


def test_no_call_at_commit_without_leadership() -> None:
    with Bench() as bench:
        bench.load()
        events: list[str] = []
        bench.log.held = True
        bench.write("a", after_commit=lambda: events.append("commit"))
        bench.runtime.resign(0)
        bench.load()
        bench.log.commit()
        assert events == []


def test_no_call_at_commit_if_nothing_was_appended() -> None:
    with Bench() as bench:
        bench.load()
        events: list[str] = []
        bench.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        bench.write("a", after_commit=lambda: events.append("commit"))
        assert events == []


def test_without_records_the_call_waits_for_those_before() -> None:
    """Also for those that were loaded: a record above the high watermark may yet be lost."""
    with Bench() as bench:
        bench.load_what_is_not_committed()
        events: list[str] = []
        bench.start(lambda _shard, _now: Result("done", after_commit=lambda: events.append("commit")))
        assert events == []
        bench.log.commit()
        assert events == ["commit"]


# --- confirms_below


def test_a_confirmation_waits_where_reads_do_not() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        bench.write("a")
        bench.settle(2 * COMMIT_TIMEOUT_MS)
        read = bench.start(lambda _shard, _now: Result("read"))
        confirmation = bench.start(lambda _shard, _now: Result("confirmed", confirms_below=1))
        assert read.result() == "read"
        assert not confirmation.done()
        bench.log.commit()
        bench.settle()
        assert confirmation.result() == "confirmed"


def test_a_confirmation_waits_for_what_it_confirms_alone() -> None:
    with Bench() as bench:
        bench.load()
        bench.write("a")
        bench.log.held = True
        bench.write("b")
        confirmation = bench.start(lambda _shard, _now: Result("confirmed", confirms_below=1))
        assert confirmation.result() == "confirmed"
        assert not bench.start(lambda _shard, _now: Result("confirmed", confirms_below=2)).done()


def test_a_confirmation_of_all_records_waits_for_the_last_one() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        bench.write("a")
        bench.settle(2 * COMMIT_TIMEOUT_MS)
        confirmation = bench.start(lambda _shard, _now: Result("confirmed", confirms_below=ALL_RECORDS))
        assert not confirmation.done()
        bench.log.commit()
        bench.settle()
        assert confirmation.result() == "confirmed"
        assert bench.start(lambda _shard, _now: Result("confirmed", confirms_below=ALL_RECORDS)).done()


def test_a_confirmation_of_what_was_loaded_waits() -> None:
    with Bench() as bench:
        bench.load_what_is_not_committed()
        confirmation = bench.start(lambda _shard, _now: Result("confirmed", confirms_below=1))
        assert not confirmation.done()
        bench.settle(2 * COMMIT_TIMEOUT_MS)
        assert code_of(confirmation) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- submit


def test_a_submitted_operation_runs_at_once() -> None:
    with Bench() as bench:
        shard = bench.load()
        shard.context.submit(lambda _now: record("a"))
        assert keys(shard) == ["a"]


def test_what_an_append_submits_comes_after_it() -> None:
    """The high watermark may rise within the append and complete earlier operations."""
    with Bench() as bench:
        shard = bench.load()
        append = bench.log.append

        def append_and_submit(partition: int, records: Sequence[tuple[bytes, bytes | None]], *more: Any) -> int:
            end_offset = append(partition, records, *more)
            if records[0][0] == b"outer":
                shard.context.submit(lambda _now: record("first"))
                shard.context.submit(lambda _now: record("second"))
            return end_offset

        bench.log.append = append_and_submit  # type: ignore[method-assign]
        bench.write("outer")
        assert shard.replayed == [(0, "outer", -1), (1, "first", -1), (2, "second", -1)]


def test_what_is_started_during_an_operation_comes_after_it() -> None:
    """A commit that an append completes may start the next operation: it must see what was appended before it."""
    with Bench() as bench:
        shard = bench.load()
        seen: list[list[str]] = []
        started: list[Deferred[str]] = []

        def later(shard: ListShard, _now: int) -> Result:
            seen.append(keys(shard))
            return Result("answer", [Record("later", None)])

        append = bench.log.append

        def append_and_start(partition: int, records: Sequence[tuple[bytes, bytes | None]], *more: Any) -> int:
            end_offset = append(partition, records, *more)
            if records[0][0] == b"outer":
                started.append(bench.runtime.start(0, later))
                assert not started[0].done
                bench.runtime.run_everywhere(lambda _shard: record("everywhere"))
            return end_offset

        bench.log.append = append_and_start  # type: ignore[method-assign]
        bench.log.held = True
        bench.write("outer")
        assert seen == [["outer"]]
        assert keys(shard) == ["outer", "later", "everywhere"]
        assert not started[0].done, "it is not committed"
        bench.log.commit()
        assert started[0].result() == "answer"


def test_what_is_started_during_an_operation_ends_as_any_other() -> None:
    with Bench() as bench:
        bench.load()
        started: list[Deferred[Any]] = []

        def resigns(_shard: ListShard, _now: int) -> Result:
            started.append(bench.runtime.start(0, lambda _shard, _now: record("refused")))
            bench.runtime.resign(0)
            return Result("done")

        bench.start(resigns)
        assert isinstance(started[0].error, KafkaError)
        assert started[0].error.code is ErrorCode.NOT_COORDINATOR

        shard = bench.load()
        parked: Deferred[str] = Deferred()

        def cancels(_shard: ListShard, _now: int) -> Result:
            started.append(bench.runtime.start(0, lambda _shard, _now: record("cancelled")))
            started[1].cancel()
            started.append(bench.runtime.start(0, lambda _shard, _now: Result(parked)))
            started.append(bench.runtime.start(0, lambda _shard, _now: Result(1 // 0)))
            return Result("done")

        bench.start(cancels)
        assert keys(shard) == []
        assert isinstance(started[3].error, KafkaError)
        assert started[3].error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert not started[2].done
        started[2].cancel()
        assert parked.cancelled


def test_what_a_refused_operation_submits_is_run() -> None:
    with Bench() as bench:
        shard = bench.load()

        def operation(_shard: ListShard, _now: int) -> Result:
            shard.context.submit(lambda _now: record("later"))
            return record("refused")

        bench.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert bench.start(operation).exception() is not None
        assert keys(shard) == ["later"]


def test_a_chain_of_submitted_operations_is_not_nested() -> None:
    with Bench() as bench:
        shard = bench.load()

        def chain(left: int) -> Result:
            if left:
                shard.context.submit(lambda _now: chain(left - 1))
            return Result()

        bench.start(lambda _shard, _now: chain(10_000))
        assert not shard.replayed


def test_an_operation_that_is_submitted_during_the_load_runs_after_it() -> None:
    with Bench() as bench:
        bench.load()
        bench.write("before")
        bench.runtime.resign(0)
        bench.log.load_gate = asyncio.Event()
        bench.elect()
        bench.settle(1)
        shard = bench.shards[-1]
        shard.context.submit(lambda _now: record("a"))
        assert keys(shard) == []
        bench.log.load_gate.set()
        bench.settle(1)
        assert keys(shard) == ["before", "a"]


def test_a_shard_that_is_unloaded_submits_nothing() -> None:
    with Bench() as bench:
        old = bench.load()
        bench.runtime.resign(0)
        new = bench.load()
        old.context.submit(lambda _now: record("a"))
        assert keys(old) == keys(new) == []


# --- awaited values


def test_a_value_from_outside_is_awaited() -> None:
    with Bench() as bench:
        shard = bench.load()

        async def value() -> int:
            await asyncio.sleep(1)
            return 7

        async def refusal() -> int:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        async def begin() -> list[Deferred[int]]:
            return [shard.context.outcome_of(value()), shard.context.outcome_of(refusal())]

        outcomes = bench.loop.run_until_complete(begin())
        bench.settle(1_001)
        assert outcomes[0].result() == 7
        assert isinstance(outcomes[1].error, KafkaError)


def test_a_value_that_is_awaited_is_cancelled_with_the_shard() -> None:
    with Bench() as bench:
        shard = bench.load()
        cancelled: list[bool] = []

        async def never() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        async def begin() -> Deferred[None]:
            return shard.context.outcome_of(never())

        outcome = bench.loop.run_until_complete(begin())
        bench.settle()
        bench.runtime.resign(0)
        bench.settle()
        assert outcome.cancelled and cancelled == [True]
