"""The regular jobs of a broker: flush, checkpoints, retention, expiry of producers.

Each job walks the logs in turns with other work (gregor.protocol.turns); calls that wait for the disk run on a thread
(gregor.broker.jobs.background).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gregor.broker.jobs.open_transactions import CHECK_S, OpenTransactions
from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import ITEMS_PER_STEP, collect
from gregor.storage.fs.disk_errors import is_full

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Steps
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.log.log import Log

_FLUSH_CHECK_S = 1.0
"""How often flush.ms and rolled segments are checked, and flush.messages for the broker's own appends; an append of a
client checks flush.messages itself.
"""

_EXPIRY_CHECK_S = 1.0


def _chosen(logs: Iterable[Log], condition: Callable[[Log], bool]) -> Steps[list[Log]]:
    """Return the logs that meet the condition."""
    found = []
    for count, log in enumerate(logs, 1):
        if condition(log):
            found.append(log)
        if not count % ITEMS_PER_STEP:
            yield None
    return found


async def flush_log(log: Log, background: Background, now_ms: int, *, rolled_only: bool = False) -> None:
    """Flush a log up to its present end. Raises KafkaError KAFKA_STORAGE_ERROR: the log is offline then."""
    plan = log.flusher.plan(now_ms, rolled_only=rolled_only)
    if plan is not None:
        try:
            await background.fsync(plan.run)
        finally:
            log.flusher.flushed(plan)


async def flush_to(log: Log, offset: int, background: Background, now_ms: int) -> None:
    """Flush a log below `offset`, in common with all callers that wait for it: those that come while a flush is under
    way share the next one. Raises KafkaError KAFKA_STORAGE_ERROR.
    """
    while log.recovery_point < min(offset, log.log_end_offset):
        if log.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic}-{log.partition} is offline")
        under_way = background.flushes.get(log)
        if under_way is not None:
            await under_way.wait()
            continue
        done = background.flushes[log] = asyncio.Event()
        try:
            await flush_log(log, background, now_ms)
        finally:
            del background.flushes[log]
            done.set()


class Maintenance:
    """Runs the jobs of one broker, from `start()` until the background is closed.

    `is_served` returns whether a partition is one of a known topic. Retention skips the others: their logs do not have
    their topic's settings yet, which may keep the records without a limit. `is_led` returns whether this broker is the
    leader of a partition: the leader warns of transactions that hang, with the client that `client_of` returns for a
    producer id, by the timeouts in ms that `timeouts_of` returns for those producer ids that a coordinator knows.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        background: Background,
        clock_ms: Callable[[], int],
        is_served: Callable[[str, int], bool] = lambda topic, partition: True,
        is_led: Callable[[str, int], bool] = lambda topic, partition: True,
        client_of: Callable[[int], str | None] = lambda producer_id: None,
        timeouts_of: Callable[[Collection[int]], Awaitable[Mapping[int, int]]] | None = None,
    ) -> None:
        self._is_served = is_served
        self._is_led = is_led
        self._open_transactions = OpenTransactions(config["transaction.max.timeout.ms"], client_of)
        self._timeouts_of = timeouts_of
        self._config = config
        self._logs = logs
        self._background = background
        self._clock_ms = clock_ms
        self._checkpointing = asyncio.Lock()
        """Held while recovery points are written, so that older ones never replace newer ones in the checkpoint."""
        self.next_retention_ms = 0
        """The time of the next retention run, if none is ordered before."""

    def start(self) -> None:
        config = self._config
        for job, interval_s in (
            (self.flush, _FLUSH_CHECK_S),
            (self.forget_removed, _EXPIRY_CHECK_S),
            # Without the 30 s that Apache Kafka waits before its first run: a disk may be full already.
            (self.retain, config["log.retention.check.interval.ms"] / 1000),
            (self.checkpoint_high_watermarks, config["replica.high.watermark.checkpoint.interval.ms"] / 1000),
            (self.checkpoint, config["log.flush.offset.checkpoint.interval.ms"] / 1000),
            (self.expire_producers, config["producer.id.expiration.check.interval.ms"] / 1000),
            (self.check_open_transactions, CHECK_S),
        ):
            self._background.spawn(self._repeat(job, interval_s))

    async def _repeat(self, job: Callable[[], Coroutine[Any, Any, None]], interval_s: float) -> None:
        while True:
            try:
                await job()
            except (KafkaError, OSError) as error:
                logger.error(
                    "this round of the job %s failed: %s; the next is in %g s", job.__name__, error, interval_s
                )
            except Exception:  # a bug: this round is lost, the next ones must not be
                logger.exception("%s failed", job.__name__)
            await asyncio.sleep(interval_s)

    def _all(self) -> Iterator[Log]:
        return (log for _, log in self._logs.logs.walk())

    async def _choose(self, condition: Callable[[Log], bool]) -> list[Log]:
        return await self._background.run_steps(_chosen(self._logs.logs.marked(), condition))

    async def flush(self) -> None:
        """Flush the logs for which flush.ms or flush.messages is due, and rolled segments of the others."""
        now_ms = self._clock_ms()
        await self.withdraw_recovery_points()

        def is_due(log: Log) -> bool:
            return log.flusher.flushes_soon and not log.offline and log.flusher.is_due(now_ms)

        for log in await self._choose(is_due):
            if self._logs.get(log.topic, log.partition) is not log:
                continue  # its topic was deleted while others were flushed
            unflushed, config = log.offsets.unflushed_messages, log.config
            whole = unflushed > 0 and (
                unflushed >= config.flush_messages or now_ms - log.flusher.last_flush_ms >= config.flush_ms
            )
            try:
                await flush_log(log, self._background, now_ms, rolled_only=not whole)
            except KafkaError as error:
                # gregor.broker.jobs.disk_watch logs a full disk, once.
                if self._logs.get(log.topic, log.partition) is log and not is_full(error):
                    logger.error("%s-%d is not flushed: %s", log.topic, log.partition, error)

    async def withdraw_recovery_points(self) -> None:
        """Write the recovery points that a truncation of a follower has lowered. The records that it appends there are
        not synced yet, and a start after a power cut must check them. Returns when the checkpoints are written."""
        async with self._checkpointing:
            fell = await self._choose(lambda log: log.offsets.recovery_point_fell)
            if [log for log in fell if log.offsets.acknowledge_lower_recovery_point()]:
                await self._write_checkpoints()

    async def retain(self) -> None:
        """Run retention over all logs, now."""
        self.next_retention_ms = self._clock_ms() + self._config["log.retention.check.interval.ms"]
        await self._background.search(self._logs.prefetching_ages(self._clock_ms()))
        passes = self._logs.retention_pass(self._clock_ms(), self._is_served)
        for paths, delay_ms in await self._background.run_steps(collect(passes)):
            if paths:
                logger.info("retention removes %s", ", ".join(paths))
                self._background.remove_later(paths, delay_ms)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the checkpoints of high watermarks."""
        plan = await self._background.run_steps(self._logs.checkpoints.high_watermarks())
        if plan is not None:
            self._logs.report(await self._background.run(plan))

    async def checkpoint(self) -> None:
        """Write the checkpoints of recovery points and log start offsets."""
        async with self._checkpointing:
            await self._write_checkpoints()

    async def _write_checkpoints(self) -> None:
        plan = await self._background.run_steps(self._logs.checkpoints.recovery_points())
        self._logs.report(await self._background.run(plan))

    async def forget_removed(self) -> None:
        """Remove deleted partitions from the checkpoints."""
        await self._background.run_steps(self._logs.forget_removed())

    async def expire_producers(self) -> None:
        """Forget the producers that have been idle for producer.id.expiration.ms."""
        now_ms = self._clock_ms()

        def expire() -> Steps[None]:
            for log in self._all():
                log.producers.expire(now_ms)
                yield None

        await self._background.run_steps(expire())

    async def check_open_transactions(self) -> None:
        """Warn of transactions that hang in the partitions that this broker leads."""
        now_ms = self._clock_ms()

        def check() -> Steps[None]:
            for count, log in enumerate(self._all(), 1):
                if log.producers.transactions and self._is_led(log.topic, log.partition):
                    self._open_transactions.observe(log, now_ms)
                if not count % ITEMS_PER_STEP:
                    yield None

        await self._background.run_steps(check())
        producer_ids = self._open_transactions.producers_without_timeout()
        if producer_ids and self._timeouts_of is not None:
            self._open_transactions.set_timeouts(await self._timeouts_of(producer_ids))
        self._open_transactions.end_round()
