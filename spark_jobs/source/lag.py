"""The lag of a streaming query: the records that its topics have behind the end of a batch.

Some versions of Spark report the ends of topics, for some sources, as they were when the batch was planned. Here they
are fetched when a batch is reported. The thread that shows the progress waits for them, for a limited time, and no
batch does. Without them the lag is unknown, which is no failure of the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.extent import Extent, extents_of
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset

MAX_WAIT_S = 1.0
"""The longest time that a line of the progress waits for the ends."""
MAX_TIMEOUT_MS = 5_000
"""The limit of the attempts of a fetch, after which its thread ends."""
PAUSE_S = 30.0
"""The time without a further fetch after one that failed."""

Extents = Mapping[str, Extent]


class Lag:
    """The ends of the topics that a query reads with these options of its source. Each fetch has a thread and
    connections of its own, and there is one at a time."""

    def __init__(
        self,
        options: Mapping[str, str],
        open_cluster: Callable[[ClientSettings], Cluster] = Cluster,
        now_s: Callable[[], float] = time.monotonic,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        """Raise JobError if this client cannot connect by the options, such as security that it does not have."""
        settings = ClientSettings.from_options(options)
        self._settings = replace(
            settings,
            request_timeout_ms=min(settings.request_timeout_ms, MAX_TIMEOUT_MS),
            default_api_timeout_ms=min(settings.default_api_timeout_ms, MAX_TIMEOUT_MS),
            connect_timeout_ms=min(settings.connect_timeout_ms, MAX_TIMEOUT_MS),
        )
        self._grows = not any(key.lower() == "assign" for key in options)
        """A query of given partitions does not read those that are added to the topic."""
        self._open_cluster = open_cluster
        self._now_s = now_s
        self._max_wait_s = max_wait_s
        self._thread: threading.Thread | None = None
        self._resumes_s = now_s()

    def extents(self, topics: Collection[str]) -> Extents | None:
        """Return the present extents of topics; None if they do not arrive in time, or could not be fetched lately."""
        if self._thread is not None and self._thread.is_alive():
            return None
        if not topics or self._now_s() < self._resumes_s:
            return None
        found: list[Extents] = []
        self._thread = threading.Thread(target=self._fetch, args=(topics, found), name="lag", daemon=True)
        self._thread.start()
        self._thread.join(self._max_wait_s)
        return found[0] if found else None

    def _fetch(self, topics: Collection[str], found: list[Extents]) -> None:
        try:
            with self._open_cluster(self._settings) as cluster:
                found.append(extents_of(cluster, sorted(topics)))
        except JobError:
            self._resumes_s = self._now_s() + PAUSE_S

    def records_behind(self, position: StreamOffset, extents: Extents | None) -> int | None:
        """Return the number of offsets between a position and the ends; None if they are not known."""
        topics = topics_of(position)
        if extents is None or not topics <= extents.keys():
            return None
        return sum(self._behind_in(extents[topic], position, topic) for topic in topics)

    def _behind_in(self, extent: Extent, position: StreamOffset, topic: str) -> int:
        made_again = bool(position.recreated(StreamOffset({}, {topic: extent.topic_id})))
        read = {} if made_again else position.offsets
        return sum(
            max(0, end - max(start, read.get(partition, start)))
            for partition, (start, end) in extent.ranges.items()
            if self._grows or partition in position.offsets
        )


def topics_of(position: StreamOffset) -> set[str]:
    """Return the topics of a position."""
    return {partition.topic for partition in position.offsets}


def position_of(values: Iterable[Any]) -> StreamOffset | None:
    """Return the position of a query from the offsets of its sources, None if none of them reads topics.

    A topic that several sources read is at the lowest of their offsets.
    """
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, bytes] = {}
    for value in values:
        try:
            position = StreamOffset.from_json(value)
        except (ValueError, TypeError, AttributeError, JobError):
            continue  # of a source of files or of generated rows
        topic_ids |= position.topic_ids
        for partition, offset in position.offsets.items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return StreamOffset(offsets, topic_ids) if offsets else None
