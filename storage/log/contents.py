"""The input of an open log: the partition that it belongs to, and the contents of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.storage.log.epochs import LeaderEpochs
from gregor.storage.log.state import LogOffsets
from gregor.storage.producers.replay import replay_producers
from gregor.storage.producers.state import ProducerStates
from gregor.storage.segment.segment import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files


class LogIdentity(NamedTuple):
    """The partition that a log belongs to."""

    topic: str
    partition: int
    topic_id: Uuid = ZERO_UUID


class LoadedParts(NamedTuple):
    """The parts of a folder that recovery has loaded already; None for one that is still to be loaded."""

    segments: list[Segment] | None = None
    """In offset order."""
    producers: ProducerStates | None = None
    """With the state up to the log end offset."""
    epochs: LeaderEpochs | None = None
    has_files: bool = False
    """Without a segment: the empty files of the first one were made in advance."""


class LogContents(NamedTuple):
    """The whole of a folder, loaded. The last segment is ready for appends."""

    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    offsets: LogOffsets
    is_new: bool
    """The folder held no segment, and the first one was created."""


def load_contents(
    files: Files,
    directory: str,
    *,
    now_ms: int,
    log_start_offset: int,
    recovery_point: int,
    producer_expiration_ms: int,
    loaded: LoadedParts,
) -> LogContents:
    """Load what is not `loaded` yet, and create the first segment of a folder that holds none. The offsets are those of
    the checkpoints. Raises OldMessageFormat, OSError and KafkaError.
    """
    segments, producers, epochs, has_files = loaded
    if segments is None:
        segments = list_segments(files, directory, now_ms)
    is_new = not segments
    if is_new:
        segments = [Segment.create(files, directory, log_start_offset, now_ms=now_ms, are_there=has_files)]
        log_end_offset = log_start_offset
    else:
        log_end_offset = _activate(segments[-1])
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    log_end_offset = max(log_end_offset, log_start_offset)
    offsets = LogOffsets(log_start_offset, log_end_offset, recovery_point)
    if epochs is None:
        epochs = _load_epochs(files, directory, segments, offsets)
    if producers is None:
        producers = ProducerStates(files, directory, producer_expiration_ms)
        _load_producers(producers, files, directory, segments, offsets)
    return LogContents(segments, producers, epochs, offsets, is_new)


def list_segments(files: Files, directory: str, now_ms: int = 0) -> list[Segment]:
    """List the segments in a folder, in offset order, without reading them."""
    found = []
    indexed = set()
    for name, is_directory, size_bytes in files.list_directory(directory):
        stem = name.removesuffix(LOG_SUFFIX)
        if name.endswith(LOG_SUFFIX) and len(stem) == 20 and stem.isascii() and stem.isdigit() and not is_directory:
            found.append((int(stem), size_bytes))
        elif name.endswith(TRANSACTION_INDEX_SUFFIX):
            indexed.add(name.removesuffix(TRANSACTION_INDEX_SUFFIX))
    segments = [
        Segment.open(files, directory, base_offset, size_bytes=size_bytes, now_ms=now_ms)
        for base_offset, size_bytes in sorted(found)
    ]
    for segment in segments:
        if f"{segment.base_offset:020d}" in indexed:
            segment.adopt_transaction_index()
    return segments


def epochs_of_batches(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return the (leader epoch, start offset) pairs of the batches themselves; reads all their headers."""
    entries: list[tuple[int, int]] = []
    for segment in segments:
        for batch in segment.scan(verify_crc=False):
            if batch.leader_epoch > (entries[-1][0] if entries else -1):
                entries.append((batch.leader_epoch, batch.base_offset))
    return entries


def _activate(active: Segment) -> int:
    """Make the last segment ready for appends; returns the log end offset."""
    active.activate()
    log_end_offset, end = active.read_next_offset()
    if end != active.size_bytes:
        active.truncate_to(end, log_end_offset)
    return log_end_offset


def _load_epochs(files: Files, directory: str, segments: list[Segment], offsets: LogOffsets) -> LeaderEpochs:
    epochs = LeaderEpochs.load(files, directory)
    if not epochs.intact:
        epochs.assign_many(epochs_of_batches(segments))
    epochs.truncate_from_end(offsets.log_end_offset, loading=True)
    epochs.truncate_from_start(offsets.log_start_offset)
    return epochs


def _load_producers(
    producers: ProducerStates,
    files: Files,
    directory: str,
    segments: list[Segment],
    offsets: LogOffsets,
) -> None:
    producers.list_snapshots(entry.name for entry in files.list_directory(directory))
    producers.remove_stray_snapshots(segment.base_offset for segment in segments)
    # Without a single snapshot, the log was closed by a Kafka that did not know of producers yet.
    if producers.snapshot_offsets:
        replay_producers(producers, segments, offsets.log_start_offset, offsets.log_end_offset)
