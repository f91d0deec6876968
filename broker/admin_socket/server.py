"""Orders from the broker's own host: compact a topic now, apply retention now, or explain when and why that happens
next.

Kafka has no API for these. A connection to the Unix socket (admin_socket.address) is one order: a line of JSON
in, a line for each partition out, and a last one.

    in   {"command": "compact" | "retention", "topic": name or null for all, "partition": n or null, "explain": bool,
          "roll": bool}
    in   {"command": "clients"}: positions in the fetches of consumers
    out  {"client_id": id, "topic": name, "partition": n, "offset": n, "lag": n, "lag_s": x or null}
    in   {"command": "repeats"}: batches that were refused or sent again
    out  {"client_id": id, "error_name": name, "total": n, "recent": n}
    in   {"command": "stalls"}: how long the event loop kept its callers waiting
    out  {"topic": name, "partition": n, ...}
    out  {"end": true} or {"error": "what to do"}
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gregor.broker.admin_socket.address import is_own_user, listen, unlink
from gregor.broker.admin_socket.explain import explain_compaction, explain_retention
from gregor.broker.log import logger
from gregor.protocol.errors import KafkaError
from gregor.storage.segment.segment import DELETED_SUFFIX, LOG_SUFFIX

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.broker.jobs.log_cleaner import LogCleaner
    from gregor.broker.jobs.loop_lag import LagMeter
    from gregor.broker.jobs.maintenance import Maintenance
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Steps
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.log.compaction import DirtyRange
    from gregor.storage.log.log import Log

MAX_ORDER_BYTES = 64 * 1024
ACCEPTING_TURNS = 5
"""Turns of the loop until a connection that was just accepted is served, and can be closed. (asyncio loses the
connection of a server that is closed in between.)"""


class OrderRefused(Exception):
    """The order cannot be carried out; the message names the reason and the remedy."""


class Control:
    """Carries out orders. Each is an iterator of answers, one for each partition."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        cleaner: LogCleaner,
        maintenance: Maintenance,
        background: Background,
        clock_ms: Callable[[], int],
        lag: LagMeter,
        clients: Callable[[], Steps[list[dict[str, Any]]]],
        replicas: ReplicaManager,
    ) -> None:
        """`clients` reads the positions in the fetches of consumers. Logs of partitions that `replicas` does not have
        are left alone: they do not have their topic's settings yet."""
        self._replicas = replicas
        self._clients = clients
        self._lag = lag
        self._config = config
        self._logs = logs
        self._cleaner = cleaner
        self._maintenance = maintenance
        self._background = background
        self._clock_ms = clock_ms

    async def carry_out(self, order: Any) -> AsyncIterator[dict[str, Any]]:
        """Carry out an order. Raises OrderRefused before the first answer."""
        if isinstance(order, dict) and order.get("command") == "stalls":
            yield {"total": self._lag.total.figures(), "last_minute": self._lag.last_minute().figures()}
            return
        if isinstance(order, dict) and order.get("command") == "clients":
            for position in await self._background.search(self._clients()):
                yield position
            return
        if isinstance(order, dict) and order.get("command") == "repeats":
            for repeated in self._replicas.traffic.repeats.read():
                yield repeated._asdict()
            return
        if not isinstance(order, dict) or order.get("command") not in ("compact", "retention"):
            raise OrderRefused("unknown order: are the command and the broker of the same version?")
        chosen, unserved = self._chosen(order)
        for log in unserved:
            yield _left_alone(log, explain=bool(order.get("explain")))
        now_ms = self._clock_ms()
        if order["command"] == "retention":
            for log in chosen:
                if order.get("explain"):
                    read: Callable[[], object] = partial(
                        explain_retention, log, now_ms=now_ms, next_check_ms=now_ms, waits_for_disk=False
                    )
                    await self._background.search(log.prefetching(read))
                    yield self._explain_retention(log, now_ms)
                else:
                    read = partial(log.retention.due_count, now_ms, waits_for_disk=False)
                    await self._background.search(log.prefetching(read))
                    yield self._retain(log, now_ms)
                await asyncio.sleep(0)
        elif order.get("explain"):
            for log in chosen:
                if log.config.compact:
                    read = partial(self._explain, log, now_ms, waits_for_disk=False)
                    await self._background.search(log.prefetching(read))
                yield self._explain_compaction(log, now_ms)
                await asyncio.sleep(0)
        else:
            async for answer in self._compact(chosen, now_ms, roll=bool(order.get("roll", True))):
                yield answer

    def _chosen(self, order: dict[str, Any]) -> tuple[list[Log], list[Log]]:
        """Return the logs that an order concerns: those that are served, and those that are not."""
        topic, partition = order.get("topic"), order.get("partition")
        if topic is None:
            if not order.get("explain"):
                raise OrderRefused("name the topic with --topic")
            logs = list(self._logs.logs.values())
            if order["command"] == "compact":
                logs = [log for log in logs if log.config.compact and self._replicas.has(log.topic, log.partition)]
        else:
            logs = [log for (name, _), log in self._logs.logs.items() if name == topic]
            if not logs:
                raise OrderRefused(f"this broker has nothing of '{topic}'. `gregor topics --list` shows the topics")
        if partition is not None:
            logs = [log for log in logs if log.partition == partition]
            if not logs:
                raise OrderRefused(f"this broker has no partition {partition} of '{topic}'")
        logs.sort(key=lambda log: (log.topic, log.partition))
        served = [log for log in logs if self._replicas.has(log.topic, log.partition)]
        if topic is not None and order["command"] == "compact" and served and not served[0].config.compact:
            raise OrderRefused(
                f"'{topic}' is not compacted: its cleanup.policy is {','.join(sorted(served[0].config.cleanup_policy))}"
            )
        return served, [log for log in logs if not self._replicas.has(log.topic, log.partition)]

    async def _compact(self, logs: list[Log], now_ms: int, *, roll: bool) -> AsyncIterator[dict[str, Any]]:
        for log in logs:
            answer: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
            try:
                if roll and log.segments[-1].size_bytes and not log.offline:
                    log.roll(now_ms)
            except KafkaError as error:
                yield answer | {"done": False, "reason": str(error)}
                continue
            result = await self._cleaner.compact_now(log)
            yield answer | {
                "done": result.cleaned,
                "reason": result.reason,
                "bytes_before": result.bytes_before,
                "bytes_after": result.bytes_after,
                "records_before": result.records_read,
                "records_after": result.records_kept,
                "cleaned_offset": log.offsets.cleaned_offset,
            }

    def _retain(self, log: Log, now_ms: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
        if log.work.cleaning:
            return answer | {"done": False, "reason": "the log is being compacted; retention follows by itself"}
        before_bytes = log.size_bytes
        try:
            paths = log.retention.delete_due(now_ms)
        except KafkaError as error:
            return answer | {"done": False, "reason": str(error)}
        self._background.remove_later(paths, log.config.file_delete_delay_ms)
        return answer | {
            "done": True,
            "removed_bytes": before_bytes - log.size_bytes,
            "removed_segments": sum(path.endswith(LOG_SUFFIX + DELETED_SUFFIX) for path in paths),
            "log_start_offset": log.log_start_offset,
        }

    def _explain_compaction(self, log: Log, now_ms: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
        if not log.config.compact:
            return answer | {"when": "never", "why": "cleanup.policy has no 'compact'"}
        try:
            dirty, when, why = self._explain(log, now_ms)
        except (KafkaError, OSError) as error:
            return answer | {"when": "unknown", "why": str(error)}
        return answer | {
            "when": when,
            "why": why,
            "cleaned_offset": log.offsets.cleaned_offset,
            "end_offset": log.log_end_offset,
            "clean_bytes": dirty.clean_bytes,
            "dirty_bytes": dirty.cleanable_bytes,
            "ratio": round(dirty.ratio, 4),
            "threshold": log.config.min_cleanable_dirty_ratio,
        }

    def _explain(self, log: Log, now_ms: int, *, waits_for_disk: bool = True) -> tuple[DirtyRange, str, str]:
        dirty = log.dirty_range(now_ms, waits_for_disk=waits_for_disk)
        when, why = explain_compaction(
            log,
            dirty,
            now_ms=now_ms,
            next_check_ms=self._cleaner.next_check_ms,
            enabled=self._config["log.cleaner.enable"] and self._config["log.cleaner.threads"] > 0,
            running=self._cleaner.is_running(log),
            trouble=self._cleaner.trouble(log),
            waits_for_disk=waits_for_disk,
        )
        return dirty, when, why

    def _explain_retention(self, log: Log, now_ms: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
        try:
            when, why = explain_retention(log, now_ms=now_ms, next_check_ms=self._maintenance.next_retention_ms)
        except (KafkaError, OSError) as error:
            return answer | {"when": "unknown", "why": str(error)}
        return answer | {"when": when, "why": why, "size_bytes": log.size_bytes, "segments": log.segments_count}


def _left_alone(log: Log, *, explain: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"topic": log.topic, "partition": log.partition}
    why = (
        "the broker does not know the topic's settings yet: the controller has not assigned the partition to it since "
        "its start, or the topic was deleted meanwhile"
    )
    return answer | ({"when": "unknown", "why": why} if explain else {"done": False, "reason": why})


class ControlSocket:
    """Serves the socket and its connections."""

    def __init__(self, control: Control, folder: str) -> None:
        self._control = control
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the socket. If that is not possible, the broker runs without it, with a warning."""
        try:
            self._server = await asyncio.start_unix_server(
                self._accepted, sock=listen(self._folder), limit=MAX_ORDER_BYTES
            )
        except (OSError, AttributeError) as error:  # no Unix sockets on this system or in this folder
            logger.warning(
                "the admin socket in %s cannot be opened, so that `gregor compact` and `retention` do not work: %s",
                self._folder,
                error,
            )

    async def stop(self) -> None:
        if self._server is None:
            return
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0)  # the connections are closed in the next turn of the loop
        try:
            unlink(self._folder)
        except OSError as error:  # a disk that has failed must not prevent the logs on the others from being closed
            logger.warning("the admin socket in %s cannot be removed: %s", self._folder, error.strerror)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if is_own_user(writer.get_extra_info("socket")):
                await self._serve(reader, writer)
            else:
                logger.warning("The admin socket in %s refuses a process of another user", self._folder)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(**answer: Any) -> None:
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()

        try:
            order = json.loads(await reader.readline())
            async for answer in self._control.carry_out(order):
                await send(**answer)
        except OrderRefused as refused:
            await send(error=str(refused))
        except (ValueError, RecursionError):
            await send(error="an order is one line of JSON")
        else:
            await send(end=True)
