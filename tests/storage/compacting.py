"""A whole compaction of one log in this process, as the broker and its worker do it together."""

from __future__ import annotations

from typing import Any

from gregor.protocol.records.batch import Record, RecordBatch, iter_batches
from gregor.storage.cleaner.cleaner import CleaningJob, CleaningRun
from gregor.storage.fs.files import Files
from gregor.storage.log.log import Log


def job_for(log: Log, now_ms: int, **changes: Any) -> CleaningJob:
    """Return the job that the broker sends to its worker for a log."""
    dirty = log.dirty_range(now_ms)
    config = log.config
    fields: dict[str, Any] = {
        "directory": log.directory,
        "segments": [
            (one.base_offset, one.size_bytes)
            for one in log.segments
            if one.base_offset < dirty.first_uncleanable_offset
        ],
        "first_dirty_offset": dirty.first_dirty_offset,
        "first_uncleanable_offset": dirty.first_uncleanable_offset,
        "now_ms": now_ms,
        "delete_retention_ms": config.delete_retention_ms,
        "segment_bytes": config.segment_bytes,
        "index_bytes": config.segment_index_bytes,
        "index_interval_bytes": config.index_interval_bytes,
        "map_bytes": 1 << 20,
        "map_load_factor": 0.9,
        "window_bytes": 4096,
        **changes,
    }
    return CleaningJob(**fields)


def live_producers(log: Log) -> dict[int, tuple[int, int]]:
    return {
        entry.producer_id: (entry.batches[-1][1] if entry.batches else -1, entry.epoch)
        for entry in log.producers.entries.values()
    }


def compact(files: Files, log: Log, now_ms: int, **changes: Any) -> int:
    """Compacts all that may be, unlinks the old segments, and returns the new first dirty offset."""
    run = CleaningRun(files, job_for(log, now_ms, **changes), live_producers(log))
    run.build_map()
    for group in run.groups():
        sources = [one for one in log.segments if one.base_offset in {source.base_offset for source in group}]
        generation = log.generation
        cleaned = run.clean(group)
        plan = log.swap.begin(cleaned.base_offset, cleaned.size_bytes, sources, generation)
        plan.sync()
        paths = log.swap.finish(plan)
        files.sync_directory(log.directory)
        for path in paths:
            files.unlink(path)
    log.offsets.mark_cleaned_to(run.end_offset)
    return run.end_offset


def all_batches(log: Log) -> list[RecordBatch]:
    """The batches of a log from its files, segment after segment."""
    return [
        batch
        for segment in log.segments
        for batch in iter_batches(segment.log.read(segment.size_bytes, 0) if segment.size_bytes else b"")
    ]


def all_records(log: Log) -> list[Record]:
    return [record for batch in all_batches(log) for record in batch.records()]


def consumed_offsets(log: Log, max_bytes: int = 1000) -> list[int]:
    """Return the offsets that a consumer gets from the log start on.

    It continues behind the last offset of each batch, even of one without records.
    """
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes, log.log_end_offset)
        batches = list(iter_batches(piece.read()))
        piece.release()
        if not batches:
            break
        found += [record.offset for batch in batches for record in batch.records() if record.offset >= offset]
        assert batches[-1].next_offset > offset, "the consumer gets on"
        offset = batches[-1].next_offset
    return found
