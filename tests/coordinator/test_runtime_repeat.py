"""The runtime's way for operations that are repeated: at once and whole, or not at all."""

from __future__ import annotations

from gregor.coordinator.result import Record, Result, WholeBatch
from gregor.protocol.errors import ErrorCode
from gregor.protocol.records.batch import build_batch
from tests.coordinator.machinery import START_MS
from tests.coordinator.runtime_bench import Bench, ListShard, encode


def batch_of(*keys: str) -> WholeBatch:
    records = [Record(key, None) for key in keys]
    return WholeBatch(build_batch([encode(record) for record in records], timestamp_ms=START_MS), records)


def repeat(bench: Bench, *keys: str) -> bool:
    return bench.runtime.repeat(0, lambda _shard, _now_ms: batch_of(*keys))


def test_records_are_appended_and_replayed_like_those_of_any_operation() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.write("a")
        assert repeat(bench, "b", "c")
        bench.write("d")
        assert shard.replayed == [(0, "a", -1), (1, "b", -1), (2, "c", -1), (3, "d", -1)]
        bench.runtime.close()
        assert bench.load(epoch=1).replayed == shard.replayed


def test_nothing_happens_where_the_partition_is_not_led_or_not_loaded() -> None:
    with Bench() as bench:
        assert not repeat(bench, "a")
        bench.elect()
        assert not repeat(bench, "a")
        bench.settle(1)
        assert repeat(bench, "a")
        bench.runtime.resign(0)
        assert not repeat(bench, "b")
        assert bench.log.appends == 1


def test_nothing_happens_where_the_commit_must_be_awaited() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.held = True
        assert not repeat(bench, "a")
        assert (bench.log.appends, shard.replayed) == (0, [])


def test_nothing_happens_where_the_operation_or_the_log_refuses() -> None:
    with Bench() as bench:
        shard = bench.load()
        assert not bench.runtime.repeat(0, lambda _shard, _now_ms: None)
        bench.log.failures = [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not repeat(bench, "a")
        assert (bench.log.appends, shard.replayed) == (0, [])
        assert repeat(bench, "a")


def test_nothing_happens_within_another_operation_whose_records_come_first() -> None:
    with Bench() as bench:
        shard = bench.load()
        within: list[bool] = []

        def operation(_shard: ListShard, _now_ms: int) -> Result:
            within.append(repeat(bench, "inner"))
            return Result("done", [Record("outer", None)])

        assert bench.start(operation).result() == "done"
        assert within == [False]
        assert shard.replayed == [(0, "outer", -1)]


def test_operations_that_a_repeated_one_submits_come_after_its_records() -> None:
    with Bench() as bench:
        shard = bench.load()

        def submitted(_now_ms: int) -> Result:
            return Result(records=[Record("later", None)])

        def operation(shard: ListShard, _now_ms: int) -> WholeBatch:
            shard.context.submit(submitted)
            return batch_of("first")

        assert bench.runtime.repeat(0, operation)
        assert shard.replayed == [(0, "first", -1), (1, "later", -1)]
