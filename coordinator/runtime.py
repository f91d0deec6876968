"""Runs operations of coordinator shards on the event loop: append, replay, wait for commit, answer.

One shard per partition of the internal topic that this broker leads. Everything happens on the loop's thread; an
operation, its append and its replay are one step. Responses, those of reads too, wait until the high watermark has
passed the records that they may show, loaded ones as well, so that no client sees a state that a change of leader could
undo. (Apache Kafka shows at once what it has loaded, up to the end of the log: a member of a group could own partitions
of a generation that the next coordinator does not know.)

Reads do not wait for long. With a replica in sync that does not fetch the high watermark stands still: after one wait
has timed out no other read waits until the high watermark moves. Writes wait or are refused, and so do reads from which
a member learns its generation, its epoch or its assignment (`Result.confirms_below`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple

from gregor.coordinator.owned_partition import OwnedPartition, S
from gregor.coordinator.ports import LogLoader, LogWriter, ShardContext, TimedOperation, ValueT
from gregor.coordinator.replaying import NO_PRODUCER_ID, LoadedRecords
from gregor.coordinator.result import ALL_RECORDS, Record, Result, WholeBatch, coordinator_error
from gregor.coordinator.timers import LoopTimers
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import Gate

_log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 256 * 1024
"""The limit of the batches of a non-atomic list of records; well below `max.message.bytes` of any topic."""

LOADS_AT_ONCE = 4
"""Partitions that are read at once. One thread replays all; more would keep more records in memory, to no end."""
_RECORD_OVERHEAD = 21  # at most, of a record without headers
_COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

_PRODUCER_ERRORS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""These concern one producer or transaction; the log accepts other records."""


class RecordFormat(NamedTuple):
    """The bytes of the internal topic's records. `decode` returns None for a record of a kind that is not served;
    `is_independent` is that of gregor.coordinator.replaying."""

    encode: Callable[[Record], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], Record | None]
    is_independent: Callable[[bytes], bool]


class RuntimeSettings(NamedTuple):
    """`name` is that of the internal topic, for the log."""

    name: str
    commit_timeout_ms: int
    load_buffer_bytes: int


class _Context:
    """Implements ShardContext."""

    __slots__ = ("_gate", "_outcomes", "_work", "leader_epoch", "submit", "timers")

    def __init__(self, leader_epoch: int, submit: Callable[[TimedOperation], None], gate: Gate) -> None:
        self.leader_epoch = leader_epoch
        self.submit = submit
        self.timers = LoopTimers(asyncio.get_running_loop(), submit, self._in_turns)
        self._outcomes: dict[Deferred[Any], asyncio.Task[None]] = {}
        self._gate = gate
        self._work: set[asyncio.Task[None]] = set()

    def _in_turns(self, steps: Iterator[None]) -> None:
        async def proceed() -> None:
            turns = self._gate.turns()
            for _ in steps:
                await turns.next()

        task = asyncio.get_running_loop().create_task(proceed())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def outcome_of(self, awaitable: Awaitable[ValueT]) -> Deferred[ValueT]:
        outcome: Deferred[ValueT] = Deferred()

        async def wait() -> None:
            try:
                outcome.complete(await awaitable)
            except Exception as error:
                outcome.fail(error)

        task = asyncio.get_running_loop().create_task(wait())
        self._outcomes[outcome] = task
        outcome.then(self._decided)
        return outcome

    def _decided(self, outcome: Deferred[Any]) -> None:
        task = self._outcomes.pop(outcome)
        if outcome.cancelled:
            task.cancel()

    def close(self) -> None:
        self.timers.cancel_all()
        for task in list(self._work):
            task.cancel()
        for outcome in list(self._outcomes):
            outcome.cancel()


class _CommitWait(Deferred[None]):
    """Answers that wait until everything below an offset is committed."""

    __slots__ = ("_answers", "_end_offset", "_owned", "_timeout", "_wrote")

    def __init__(
        self, owned: OwnedPartition[Any], answers: list[tuple[Deferred[Any], Any]], end_offset: int, *, wrote: bool
    ) -> None:
        super().__init__()
        self._owned = owned
        self._answers = answers
        self._end_offset = end_offset
        self._wrote = wrote
        self._timeout: asyncio.TimerHandle | None = None

    def limit(self, timeout_s: float) -> None:
        """Begin the time within which the commit must come."""
        self._timeout = asyncio.get_running_loop().call_later(timeout_s, self._time_out)
        self._owned.waits[self] = not self._wrote

    def decided(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE or error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self._owned.committed(self._end_offset)
            if not self._wrote:
                # It is committed; that few are in sync by now concerns the writer, not readers.
                error = ErrorCode.NONE
        if error:
            self.fail(KafkaError(coordinator_error(error)))
        else:
            self.complete(None)

    def _time_out(self) -> None:
        self._owned.time_out_reads()
        if self._wrote:
            # The records stay in the log and may yet be committed; the client gets an error to retry on.
            self.decided(ErrorCode.REQUEST_TIMED_OUT)

    def give_answers(self) -> None:
        """Complete the answers, or fail them. Called once this is decided."""
        if self._timeout is not None:
            self._timeout.cancel()
            self._owned.waits.pop(self, None)
        for waiting, answer in self._answers:
            if self.error is not None:
                waiting.fail(self.error)
            else:
                waiting.complete(answer)


class CoordinatorRuntime(Generic[S]):
    """All shards of one coordinator on this broker."""

    def __init__(
        self,
        make_shard: Callable[[ShardContext], S],
        record_format: RecordFormat,
        writer: LogWriter,
        loader: LogLoader,
        clock_ms: Callable[[], int],
        gate: Gate,
        settings: RuntimeSettings,
    ) -> None:
        self._make_shard = make_shard
        self._encode, self._decode, self._is_independent = record_format
        self._writer = writer
        self._loader = loader
        self._clock_ms = clock_ms
        self._name = settings.name
        self._commit_timeout_s = settings.commit_timeout_ms / 1000
        self._load_buffer_bytes = settings.load_buffer_bytes
        self._owned: dict[int, OwnedPartition[S]] = {}
        self._gate = gate
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE)

    # --- which partitions

    def elect(self, partition: int, epoch: int) -> asyncio.Task[None] | None:
        """This broker leads the partition now: load it. Returns the load, or None if there is nothing to load.

        A partition that this broker coordinates in an older epoch is loaded again: in between another one may have led,
        of which this broker did not learn, and it refuses the markers of the older epoch.
        """
        owned = self._owned.get(partition)
        if owned is not None:
            if epoch <= owned.context.leader_epoch and owned.error is not ErrorCode.NOT_COORDINATOR:
                return None
            self.resign(partition)
        owned = self._owned[partition] = OwnedPartition()
        owned.context = _Context(epoch, partial(self._submit, partition, owned), self._gate)
        owned.shard = self._make_shard(owned.context)
        owned.load = load = asyncio.get_running_loop().create_task(self._load(partition, owned))
        return load

    def resign(self, partition: int, epoch: int | None = None) -> None:
        """This broker leads the partition no more: forget it. An epoch that is not newer than ours is old news."""
        owned = self._owned.get(partition)
        if owned is None or (epoch is not None and epoch <= owned.context.leader_epoch):
            return
        del self._owned[partition]
        if owned.load is not None:
            owned.load.cancel()
        owned.shard.on_unloaded(ErrorCode.NOT_COORDINATOR)
        owned.context.close()
        for parked in list(owned.waits):
            parked.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

    def close(self) -> None:
        """Forget all partitions."""
        for partition in list(self._owned):
            self.resign(partition)

    def shard(self, partition: int) -> S:
        """The loaded shard of a partition, to read from. Raises KafkaError if there is none."""
        return self._active(partition).shard

    def loaded(self) -> Iterator[int]:
        """The partitions that answer requests. Raises KafkaError while one is loading."""
        for partition, owned in list(self._owned.items()):
            if owned.error is ErrorCode.NONE:
                yield partition
            elif owned.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(owned.error)

    def partitions(self) -> list[int]:
        """The partitions that this broker leads, also those that are loading."""
        return list(self._owned)

    def _active(self, partition: int) -> OwnedPartition[S]:
        owned = self._owned.get(partition)
        if owned is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if owned.error:
            raise KafkaError(owned.error)
        return owned

    # --- operations

    async def run(self, partition: int, operation: Callable[[S, int], Result]) -> Any:
        """Run an operation with the wall clock in ms; returns its response once all that it depends on is committed.

        Raises KafkaError, with the code that a client of a coordinator expects.
        """
        pending = self.start(partition, operation)
        if pending.done:
            return pending.result()
        return await outcome_of(pending, asyncio.get_running_loop().create_future())

    def check_current(self) -> None:
        """Check before an operation that must not miss what another broker has written as the leader, and may respond
        without a record: a leader that was replaced cannot commit records, but no other response needs a commit.

        Raises KafkaError NOT_COORDINATOR while this broker cannot know whether it was replaced.
        """
        if self._loader.may_be_outdated():
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def outcome_of(self, pending: Deferred[ValueT]) -> ValueT:
        """Wait for a Deferred in a coroutine. A cancellation cancels it too."""
        if pending.done:
            return pending.result()
        return await outcome_of(pending, asyncio.get_running_loop().create_future())

    def start(self, partition: int, operation: Callable[[S, int], Result]) -> Deferred[Any]:
        """As `run`, for a caller that does not wait; the Deferred fails with KafkaError."""
        try:
            owned = self._active(partition)
            if owned.busy:
                return self._start_later(partition, owned, operation)
            result = self._perform(partition, owned, operation)
            pending = self._release(partition, owned, result)
        except KafkaError as error:
            pending = Deferred()
            pending.fail(error)
            return pending
        if pending is None:
            pending = Deferred()
            pending.complete(result.response)
        return pending

    def repeat(self, partition: int, operation: Callable[[S, int], WholeBatch | None]) -> bool:
        """Run an operation whose response is known, if that can be done at once. True: its records are appended,
        replayed and committed. False: nothing has happened, and `start` must serve the request; so it is also if the
        operation returns None or the log refuses its records, since `start` finds the same reason and answers it."""
        owned = self._owned.get(partition)
        if owned is None or owned.error or owned.busy or owned.queued or not self._writer.commits_at_once(partition):
            return False
        owned.begin_operation()
        try:
            batch = operation(owned.shard, self._clock_ms())
            if batch is None:
                return False
            try:
                end_offset = self._writer.append_batch(partition, batch.data)
            except KafkaError:
                return False
            for offset, record in enumerate(batch.records, end_offset - len(batch.records)):
                owned.shard.replay(record, offset)
            owned.replayed(end_offset)
            owned.accepted()
            owned.committed(end_offset)
        finally:
            owned.end_operation()
        return True

    def _start_later(
        self, partition: int, owned: OwnedPartition[S], operation: Callable[[S, int], Result]
    ) -> Deferred[Any]:
        """Queue an operation behind the one that runs, whose records may be appended and not replayed yet."""
        later: Deferred[Any] = Deferred()

        def begin() -> None:
            if later.done:
                return
            started = self.start(partition, operation)
            later.then(lambda _: started.cancel())
            started.then(
                lambda _: later.complete(started.value) if started.error is None else later.fail(started.error)
            )

        owned.queued.append(begin)
        return later

    def run_everywhere(self, operation: Callable[[S], Result]) -> None:
        """Run an operation without a response on every shard; on those that are loading, after that."""
        for partition, owned in list(self._owned.items()):
            if owned.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                owned.after_load.append(_timeless(operation))
            elif owned.busy:
                owned.queued.append(partial(self._run_submitted, partition, owned, _timeless(operation)))
            elif owned.error is ErrorCode.NONE:
                self._run_quietly(partition, owned, _timeless(operation))

    def _submit(self, partition: int, owned: OwnedPartition[S], operation: TimedOperation) -> None:
        if self._owned.get(partition) is not owned:
            return
        timed = _without_shard(operation)
        if owned.busy:
            owned.queued.append(partial(self._run_submitted, partition, owned, timed))
        elif owned.error is ErrorCode.NONE:
            self._run_quietly(partition, owned, timed)
        elif owned.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # One of those that are being started, and too short for their number.
            owned.after_load.append(timed)

    def _run_submitted(self, partition: int, owned: OwnedPartition[S], operation: Callable[[S, int], Result]) -> None:
        if self._owned.get(partition) is owned:
            self._run_quietly(partition, owned, operation)

    def _run_quietly(self, partition: int, owned: OwnedPartition[S], operation: Callable[[S, int], Result]) -> None:
        try:
            self._release(partition, owned, self._perform(partition, owned, operation))
        except KafkaError as error:  # the reason has been logged
            _log.debug("%s-%d: a change could not be written: %s", self._name, partition, error)

    def _perform(self, partition: int, owned: OwnedPartition[S], operation: Callable[[S, int], Result]) -> Result:
        """Run, append, replay; then run the operations that were submitted meanwhile."""
        owned.begin_operation()
        try:
            return self._perform_alone(partition, owned, operation)
        finally:
            owned.end_operation()

    def _perform_alone(self, partition: int, owned: OwnedPartition[S], operation: Callable[[S, int], Result]) -> Result:
        try:
            result = operation(owned.shard, self._clock_ms())
        except Exception as error:
            _log.exception("%s-%d: an operation failed", self._name, partition)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if not result.records and result.marker is None:
            return result
        try:
            self._append(partition, owned, result)
        except KafkaError as error:
            self._log_refusal(partition, owned, error)
            raise self._failed(result, error.code) from error
        except Exception as error:
            _log.exception("%s-%d: an append failed", self._name, partition)
            raise self._failed(result, ErrorCode.UNKNOWN_SERVER_ERROR) from error
        return result

    def _log_refusal(self, partition: int, owned: OwnedPartition[S], error: KafkaError) -> None:
        """Once and not with every request; the disk watch logs a disk that is full or has failed."""
        known = error.code in _PRODUCER_ERRORS
        if not known:
            known = owned.refused(error.code) or error.code == ErrorCode.KAFKA_STORAGE_ERROR
        level = logging.DEBUG if known else logging.WARNING
        _log.log(level, "%s-%d: records cannot be appended: %s", self._name, partition, error)

    def _failed(self, result: Result, error: ErrorCode) -> KafkaError:
        code = coordinator_error(error)
        for parked, _ in result.releases:
            parked.fail(KafkaError(code))
        if result.on_failure is not None:
            result.on_failure(code)
        return KafkaError(code)

    def _append(self, partition: int, owned: OwnedPartition[S], result: Result) -> None:
        if result.marker is not None:
            owned.replayed(self._writer.append_marker(partition, result.marker))
            owned.shard.replay_end_of_transaction(result.marker.producer_id, commit=result.marker.commit)
            owned.accepted()
            return
        try:
            encoded = [self._encode(record) for record in result.records]
        except ValueError as error:
            # A name that the request could carry and the record cannot.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        producer = result.producer
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for first, last in [(0, len(encoded))] if result.atomic else _batches(encoded):
            end_offset = self._writer.append(partition, encoded[first:last], producer)
            for offset, record in enumerate(result.records[first:last], end_offset - (last - first)):
                owned.shard.replay(record, offset, producer_id)
            owned.replayed(end_offset)
        owned.accepted()

    # --- commit

    def _release(self, partition: int, owned: OwnedPartition[S], result: Result) -> Deferred[Any] | None:
        """Complete the pending answers once all that was written here is committed; returns the operation's own."""
        response = result.response
        pending: Deferred[Any] | None = response if isinstance(response, Deferred) else None
        answers = list(result.releases)
        if response is not None and pending is None:
            pending = Deferred()
            answers.append((pending, response))
        wrote = bool(result.records) or result.marker is not None
        if wrote and self._writer.is_committed(partition, owned.end_offset):
            owned.committed(owned.end_offset)
        confirms_below = owned.end_offset if result.confirms_below == ALL_RECORDS else result.confirms_below
        if answers and confirms_below > owned.committed_offset:
            self._await_commit(partition, owned, answers, confirms_below, wrote=True)
        elif (
            answers
            and not confirms_below
            and owned.end_offset > owned.committed_offset
            and (wrote or not owned.commit_timed_out)
        ):
            self._await_commit(partition, owned, answers, owned.end_offset, wrote=wrote)
        else:
            for waiting, answer in answers:
                waiting.complete(answer)
        if result.after_commit is not None:
            if wrote and owned.committed_offset >= owned.end_offset and self._owned.get(partition) is owned:
                result.after_commit()
            else:
                self._notify_of_commit(partition, owned, result.after_commit)
        return pending

    def _notify_of_commit(self, partition: int, owned: OwnedPartition[S], callback: Callable[[], None]) -> None:
        def decided(error: ErrorCode) -> None:
            if error in _COMMITTED and self._owned.get(partition) is owned:
                callback()

        try:
            self._writer.when_committed(partition, owned.end_offset, decided)
        except KafkaError as error:
            _log.debug("%s-%d: the commit of records cannot be awaited: %s", self._name, partition, error)

    def _await_commit(
        self,
        partition: int,
        owned: OwnedPartition[S],
        answers: list[tuple[Deferred[Any], Any]],
        end_offset: int,
        *,
        wrote: bool,
    ) -> None:
        wait = _CommitWait(owned, answers, end_offset, wrote=wrote)
        try:
            self._writer.when_committed(partition, end_offset, wait.decided)
        except KafkaError as error:
            wait.decided(error.code)
        if not wait.done:
            wait.limit(self._commit_timeout_s)
        wait.then(_CommitWait.give_answers)

    # --- load

    async def _load(self, partition: int, owned: OwnedPartition[S]) -> None:
        try:
            async with self._loads:
                await self._replay_log(partition, owned)
            await self._gate.run(owned.shard.on_loaded(self._clock_ms()))
        except KafkaError as error:
            _log.warning(
                "%s-%d could not be loaded, this broker is not its coordinator: %s", self._name, partition, error
            )
            owned.load_failed()
            return
        except Exception:
            _log.exception("%s-%d could not be loaded, this broker is not its coordinator", self._name, partition)
            owned.load_failed()
            return
        turns = self._gate.turns()
        for operation in owned.begin_service():
            self._run_quietly(partition, owned, operation)
            await turns.next()

    async def _replay_log(self, partition: int, owned: OwnedPartition[S]) -> None:
        name = f"{self._name}-{partition}"
        loaded = LoadedRecords(self._is_independent)
        offset, end_offset = self._loader.bounds(partition)
        while offset < end_offset:
            data = await self._loader.read(partition, offset, self._load_buffer_bytes)
            reached = await self._gate.run(loaded.read(data, offset))
            if reached == offset:
                break
            offset = reached
            if loaded.is_full:
                await self._gate.run(loaded.replay(owned.shard, self._decode, name))
        await self._gate.run(loaded.replay(owned.shard, self._decode, name))
        end_offset = max(offset, end_offset)
        owned.replayed(end_offset)
        if self._writer.is_committed(partition, end_offset):
            owned.committed(end_offset)


def _without_shard(operation: TimedOperation) -> Callable[[Any, int], Result]:
    return lambda _shard, now_ms: operation(now_ms)


def _timeless(operation: Callable[[S], Result]) -> Callable[[S, int], Result]:
    return lambda shard, _now_ms: operation(shard)


def _batches(encoded: list[tuple[bytes, bytes | None]]) -> Iterator[tuple[int, int]]:
    """First and last index of runs of records that fit into a batch."""
    first = size_bytes = 0
    for index, (key, value) in enumerate(encoded):
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if index > first and size_bytes + record_bytes > MAX_BATCH_BYTES:
            yield first, index
            first, size_bytes = index, 0
        size_bytes += record_bytes
    yield first, len(encoded)
