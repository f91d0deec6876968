"""The runtime with transactions: their records, and the markers that end them."""

from typing import Any

import pytest

from gregor.coordinator.result import Producer, Result
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.records.control import EndTransaction
from tests.coordinator.runtime_bench import Bench, code_of

MARKER = EndTransaction(producer_id=7, producer_epoch=1, coordinator_epoch=3, commit=True, transaction_version=2)


def end_transaction(bench: Bench, response: object = "ended") -> Deferred[Any]:
    async def end() -> Deferred[Any]:
        return bench.runtime.start(0, lambda _shard, _now: Result(response, marker=MARKER))

    return bench.loop.run_until_complete(end())


@pytest.mark.parametrize("reload", [False, True])
def test_records_of_a_transaction_are_replayed_as_such_and_so_is_its_marker(reload: bool) -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.write("a", producer=Producer(7, 0, verified=True, guard="guard"))
        assert end_transaction(bench).result() == "ended"
        bench.write("b")
        if reload:
            bench.runtime.resign(0)
            shard = bench.load()
        assert shard.replayed == [(0, "a", 7), (-1, "commit", 7), (2, "b", -1)]
        assert bench.log.guards == ["guard"]


def test_a_marker_is_answered_at_its_commit_and_reads_wait_for_it() -> None:
    with Bench() as bench:
        bench.load()
        bench.log.held = True
        ended = end_transaction(bench)
        read = bench.start(lambda shard, _now: Result(len(shard.replayed)))
        assert not (ended.done or read.done())
        bench.log.commit()
        bench.settle()
        assert (ended.result(), read.result()) == ("ended", 1)


def test_a_marker_that_cannot_be_appended_is_not_replayed() -> None:
    with Bench() as bench:
        shard = bench.load()
        bench.log.failures.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ended = end_transaction(bench)
        assert isinstance(ended.error, KafkaError)
        assert ended.error.code is ErrorCode.NOT_COORDINATOR
        assert shard.replayed == []


def test_an_operation_that_is_not_awaited_has_its_outcome_at_once_or_later() -> None:
    with Bench() as bench:
        refused = bench.runtime.start(0, lambda _shard, _now: Result("never"))
        assert isinstance(refused.error, KafkaError)
        assert refused.error.code is ErrorCode.NOT_COORDINATOR
        bench.load()
        assert bench.runtime.start(0, lambda _shard, _now: Result()).result() is None
        assert bench.runtime.start(0, lambda _shard, _now: Result("read")).result() == "read"


def test_what_one_producer_may_not_write_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Bench() as bench:
        bench.load()
        for code in ("INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"):
            bench.log.failures.append(ErrorCode[code])
            assert code_of(bench.write("a", producer=Producer(7, 0))) is ErrorCode[code]
        assert [line for line in caplog.records if line.levelname == "WARNING"] == []
