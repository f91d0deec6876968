"""The age of the first unread record of each partition of a group: its lag in seconds.

The record is read as any consumer reads it, so a leader of any kind shows it, and the result is exact where offsets
have gaps: after compaction, at the markers of transactions, and where the log begins behind the committed offset.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from gregor.broker.cli.client import client_settings, make_client
from gregor.broker.metrics.lag.clients import LAG_READER
from gregor.protocol.topic_partition import TopicPartitionKey

NOTHING_UNREAD = -1
"""In place of a timestamp: no record stands from the committed offset to the end of the log."""
_BATCH = 1000
_POLL_S = 0.5


class FirstUnread:
    """Reads the timestamps of first unread records, with one client for all groups; a context manager."""

    def __init__(self, bootstrap: str, config_file: str | None, timeout_s: float) -> None:
        self._settings = {
            **client_settings(bootstrap, config_file, client_id=LAG_READER),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            # One record of each partition is needed; a larger batch comes whole.
            "fetch.message.max.bytes": 16 * 1024,
            "fetch.wait.max.ms": 50,
        }
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def timestamps_ms(
        self, group: str, committed: Mapping[TopicPartitionKey, int], ends: Mapping[TopicPartitionKey, int]
    ) -> dict[TopicPartitionKey, int]:
        """Return the timestamp of the first record from each committed offset on, or NOTHING_UNREAD.

        Partitions that cannot be read in time, whose offset is beyond the end of the log, or whose records have no
        timestamp are missing in the result.
        """
        shared = {key: offset for key, offset in committed.items() if key in ends}
        found = {key: NOTHING_UNREAD for key, offset in shared.items() if offset == ends[key]}
        pending = {key for key, offset in shared.items() if offset < ends[key]}
        if not pending:
            return found
        if self._consumer is None:
            # It joins no group: the id only names one that the user may describe.
            self._consumer = make_client(Consumer, {**self._settings, "group.id": group})
        consumer = self._consumer
        consumer.assign([TopicPartition(*key, shared[key]) for key in sorted(pending)])
        deadline = time.monotonic() + self._timeout_s
        while pending and time.monotonic() < deadline:
            done = set()
            for message in consumer.consume(_BATCH, _POLL_S):
                key = (message.topic(), message.partition())
                if key in pending and not _is_transient(message):
                    done.add(key)
                    pending.discard(key)
                    timestamp_ms = _timestamp_ms(message, ends[key])
                    if timestamp_ms is not None:
                        found[key] = timestamp_ms
            if done:
                consumer.incremental_unassign([TopicPartition(*key) for key in done])
        consumer.unassign()
        return found


def _is_transient(message: Message) -> bool:
    """Return whether the client library repeats what failed by itself."""
    error = message.error()
    return error is not None and error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def _timestamp_ms(message: Message, end: int) -> int | None:
    error = message.error()
    if error is not None:
        return NOTHING_UNREAD if error.code() == KafkaError._PARTITION_EOF else None
    offset = message.offset()
    if offset is not None and offset >= end:  # appended after the end of the log was read
        return NOTHING_UNREAD
    kind, timestamp_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
