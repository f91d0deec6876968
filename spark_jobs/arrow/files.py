"""A range read from the segment files of the leader on the same host.

No row is returned before the leader has confirmed, after its bytes were read, that it still leads in the same epoch and
that the range is below its high watermark (with read_committed: its last stable offset). A leader never truncates, and
a broker that becomes a follower refuses requests of the old epoch before it truncates: the bytes were right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.arrow.decoder import Aborted, AbortedTransactions, Decoder
from gregor.spark_jobs.arrow.segments import Identity, PartitionFiles, Unreadable
from gregor.spark_jobs.client.offsets import EARLIEST, LATEST, list_offsets
from gregor.spark_jobs.client.settings import READ_COMMITTED, READ_UNCOMMITTED

if TYPE_CHECKING:
    import pyarrow as pa

    from gregor.spark_jobs.arrow.local import LocalLog
    from gregor.spark_jobs.arrow.plan import ReadPlan
    from gregor.spark_jobs.client.cluster import Cluster


class Authority(Protocol):
    """The one that knows which records of the files are committed."""

    def check_start(self, offset: int) -> None:
        """Raise Unreadable unless the log starts at or below an offset."""

    def confirm(self, end_offset: int) -> None:
        """Raise Unreadable unless what was read of the files so far was right, and is committed below an offset."""


class FilesReader:
    """Reads one range. The decoder's next offset is where it starts, and where another reader can continue."""

    def __init__(
        self,
        files: PartitionFiles,
        authority: Authority,
        plan: ReadPlan,
        decoder: Decoder,
        aborted: AbortedTransactions | None,
    ) -> None:
        """`aborted`, which the decoder follows, gets the transactions of the .txnindex files."""
        self._files = files
        self._authority = authority
        self._plan = plan
        self._decoder = decoder
        self._aborted = aborted

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range. Raises Unreadable, with all rows yielded before it being right,
        CorruptRecords, and KafkaFailure."""
        decoder, end = self._decoder, self._plan.range.end_offset
        files, authority = self._files, self._authority
        authority.check_start(decoder.next_offset)
        authority.confirm(end)
        since = self._plan.filters.min_timestamp_ms
        if since is not None:
            decoder.skip_to(files.first_offset_since(since, decoder.next_offset, end))
        if self._aborted is not None:
            found = files.aborted(decoder.next_offset, end)
            self._aborted.replace(Aborted(one.first_offset, one.producer_id, one.last_offset) for one in found)
        exhausted: Identity | None = None
        while decoder.next_offset < end:
            segment = files.segment_at(decoder.next_offset, exhausted)
            if segment is None or segment.base_offset >= end:
                if segment is not None:
                    segment.close()
                authority.confirm(end)
                decoder.skip_to(end)  # compaction has removed the last records of the range
                return
            with segment:
                # No segment lies between: what an exhausted one lacks up to here, compaction has removed.
                decoder.skip_to(segment.base_offset)
                for window in segment.windows(segment.position_of(decoder.next_offset)):
                    authority.confirm(end)
                    yield from decoder.decode(window)
                    if decoder.next_offset >= end:
                        return
                exhausted = segment.identity


class LeaderAuthority:
    """The leader, by ListOffsets in the epoch in which the folder was found."""

    def __init__(self, cluster: Cluster, key: TopicPartition, log: LocalLog, read_committed: bool) -> None:
        self._cluster = cluster
        self._key = key
        self._log = log
        self._read_committed = read_committed

    def check_start(self, offset: int) -> None:
        first = list_offsets(self._cluster, {self._key: EARLIEST}, READ_UNCOMMITTED)[self._key].offset
        if first > offset:
            raise Unreadable(f"{self._key.topic}-{self._key.partition} starts at offset {first}")

    def confirm(self, end_offset: int) -> None:
        isolation = READ_COMMITTED if self._read_committed else READ_UNCOMMITTED
        limit = list_offsets(self._cluster, {self._key: LATEST}, isolation)[self._key].offset
        found = self._cluster.partition(*self._key)
        name = f"{self._key.topic}-{self._key.partition}"
        if (found.leader, found.leader_epoch) != (self._log.leader, self._log.leader_epoch):
            raise Unreadable(
                f"broker {found.leader} leads {name} since epoch {found.leader_epoch}, no more broker "
                f"{self._log.leader} in epoch {self._log.leader_epoch}"
            )
        if limit < end_offset:
            what = "last stable offset" if self._read_committed else "high watermark"
            raise Unreadable(f"{name} has the {what} {limit}, below the end of the range")
