"""The data folder of a stopped broker, gregor's or Apache Kafka's, read without any broker.

Records count as committed up to the offsets that the broker noted last: `replication-offset-checkpoint` has the high
watermarks, which a clean stop writes and a running broker every five seconds, and `log-start-offset-checkpoint` the log
start offsets where they are not those of the first segments. Both are text: a version 0, the number of entries, and an
entry `topic partition offset` a line. (Kafka's OffsetCheckpointFile.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

from gregor.protocol.records.batch import CorruptBatch, RecordBatch, iter_batches
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.spark_jobs.arrow.plan import CorruptRecords
from gregor.spark_jobs.arrow.segments import PartitionFiles, Segment, Unreadable
from gregor.spark_jobs.errors import JobError
from gregor.storage.fs.folder_lock import is_locked

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"


class StoppedBroker:
    """A data folder that no broker uses. It is the authority of its files as long as that is so."""

    def __init__(self, folder: str) -> None:
        """Raise JobError if the folder cannot be read, or a broker uses it."""
        self.folder = folder
        try:
            self._names = os.listdir(folder)
        except OSError as error:
            raise JobError(f"the data folder {folder} cannot be read: {error.strerror}") from error
        self.confirm(0)
        self._high_watermarks = _checkpoint(os.path.join(folder, HIGH_WATERMARKS))
        self._log_starts = _checkpoint(os.path.join(folder, LOG_START_OFFSETS))

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions that have a folder here, by their topics."""
        found: dict[str, list[int]] = {}
        for topic, _, number in (name.rpartition("-") for name in self._names):
            if topic and number.isdecimal():
                found.setdefault(topic, []).append(int(number))
        return {topic: sorted(numbers) for topic, numbers in sorted(found.items())}

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a folder here."""
        return self.topics().get(topic, [])

    def files(self, topic: str, partition: int) -> PartitionFiles:
        return PartitionFiles(os.path.join(self.folder, f"{topic}-{partition}"))

    def bounds(self, topic: str, partition: int, read_committed: bool) -> tuple[int, int]:
        """Return the log start offset and the high watermark of a partition, or its last stable offset; without a
        checkpoint, the end of its last complete batch. Raises JobError."""
        try:
            return self._bounds(topic, partition, read_committed)
        except Unreadable as error:
            raise JobError(str(error)) from error

    def _bounds(self, topic: str, partition: int, read_committed: bool) -> tuple[int, int]:
        files = self.files(topic, partition)
        bases = files.listing().bases
        if not bases:
            return 0, 0
        start = max(self._log_starts.get((topic, partition), 0), bases[0])
        end = self._high_watermarks.get((topic, partition))
        if read_committed or end is None:
            end = _scanned_end(files, bases, end, read_committed, (topic, partition))
        return start, max(start, end)

    def check_start(self, offset: int) -> None:
        """Do nothing: `bounds` gave the start of the range, and no broker has moved it since."""

    def confirm(self, end_offset: int) -> None:
        if is_locked(self.folder):
            raise JobError(
                f"a broker uses the data folder {self.folder}: stop it, or read its topics through it by naming its "
                f"bootstrap servers"
            )


def _scanned_end(
    files: PartitionFiles, bases: list[int], limit: int | None, read_committed: bool, name: TopicPartitionKey
) -> int:
    """Return the offset after the last complete batch, or `limit` if that is lower; with read_committed, the first
    offset of the transactions that are open there. Only the headers are decoded."""
    end = bases[0]
    first_offsets: dict[int, int] = {}
    for batch in _batches(files, bases, name):
        if limit is not None and batch.next_offset > limit:
            break
        end = batch.next_offset
        if batch.is_control:
            first_offsets.pop(batch.producer_id, None)
        elif batch.is_transactional:
            first_offsets.setdefault(batch.producer_id, batch.base_offset)
    return min(first_offsets.values(), default=end if limit is None else limit) if read_committed else end


def _batches(files: PartitionFiles, bases: list[int], name: TopicPartitionKey) -> Iterator[RecordBatch]:
    for base, following in pairwise([*bases, None]):
        assert base is not None
        try:
            with Segment(files.path, base) as segment:
                for window in segment.windows(0):
                    for batch in iter_batches(window):
                        if following is None and not batch.crc_ok():
                            return  # a crash of the machine has left what was never written
                        yield batch
        except CorruptBatch as error:
            raise CorruptRecords(*name, base, str(error)) from error
        except Unreadable:
            if following is not None:
                raise


def _checkpoint(path: str) -> dict[TopicPartitionKey, int]:
    """Read the offsets of a checkpoint; none if there is no such file. Raises JobError."""
    try:
        with open(path, encoding="utf-8") as file:
            version, count, *lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise JobError(
            f"{path} cannot be read: {error}. Start the broker of this folder once: it repairs it"
        ) from error
    try:
        entries = [line.split() for line in lines]
        found = {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
        if int(version) or int(count) != len(found):
            raise ValueError(f"version {version} with {count} entries, of which {len(found)} are there")
    except ValueError as error:
        raise JobError(f"{path} is malformed: {error}. Start the broker of this folder once: it repairs it") from error
    return found
