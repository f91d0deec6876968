"""Fetches without records below the end of a log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.client.failure import KafkaFailure

if TYPE_CHECKING:
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.spark_jobs.client.cluster import Cluster

PATIENCE_MS = 5_000
"""Most logs keep their last batch, if only as a header, so that few ranges that are really empty are waited for."""

_log = logging.getLogger("gregor.spark_jobs.client")


class EmptyFetches:
    """Decides whether a range has no records, when its leader has returned none below the end of its log.

    A leader that has a batch in the range returns it, control batches included, unless its read has lasted longer than
    the request waits: that of tiered storage, for example. Then a later request returns it. So a range is empty only
    when no fetch at its first offset has returned a batch for PATIENCE_MS.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition) -> None:
        self._cluster = cluster
        self._name = f"{partition.topic}-{partition.partition}"
        self.forget()

    def forget(self) -> None:
        """Count anew: fetches have failed meanwhile."""
        self._offset = -1

    def is_empty(self, offset: int) -> bool:
        """Return, after a fetch without records, whether there are none from this offset on. If not, wait before: the
        caller fetches again."""
        if offset != self._offset:
            self._offset, self._retries = offset, self._cluster.retrying(PATIENCE_MS)
        failure = KafkaFailure(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self._name} has returned no records from offset {offset} on, below the end of its log",
        )
        try:
            self._retries.after(failure)
        except KafkaFailure as last:
            _log.warning("%s. It is read as a range without records: all were compacted, or deleted.", last.text)
            return True
        return False
