"""The contents of the checkpoint files: an offset of each log, gathered in steps.

With 10,000 partitions that is some milliseconds of work, every few seconds, and requests are served in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP
from gregor.storage.folders.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    Offsets,
)

if TYPE_CHECKING:
    from gregor.protocol.turns import Steps, WalkableDict
    from gregor.storage.folders.data_folder import DataFolder
    from gregor.storage.log.log import Log


def offset_of(name: str, log: Log) -> int | None:
    """Return the entry of the log in the file; None where it needs none."""
    if name == HIGH_WATERMARK_FILE:
        return log.high_watermark
    if name == RECOVERY_POINT_FILE:
        return log.recovery_point
    if name == LOG_START_OFFSET_FILE:
        start = log.log_start_offset
        return start if start > log.first_segment_offset else None
    assert name == CLEANER_OFFSET_FILE
    return log.offsets.cleaned_offset


def _kept(name: str, folder: DataFolder) -> Offsets:
    """Return the entries that the file had when the broker started."""
    return {
        HIGH_WATERMARK_FILE: folder.high_watermarks,
        RECOVERY_POINT_FILE: folder.recovery_points,
        LOG_START_OFFSET_FILE: folder.log_start_offsets,
        CLEANER_OFFSET_FILE: folder.cleaned_offsets,
    }[name]


def keep(key: TopicPartition, log: Log, folder: DataFolder) -> None:
    """Keep the entries of a log that is no longer served: from now on its partition is an unserved one."""
    for name in (HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE):
        offset = offset_of(name, log)
        if offset is None:
            _kept(name, folder).pop(key, None)
        else:
            _kept(name, folder)[key] = offset


def gather(
    names: Sequence[str],
    folders: Sequence[DataFolder],
    logs: WalkableDict[TopicPartition, Log],
    homes: Mapping[TopicPartition, DataFolder],
    unserved: Collection[TopicPartition],
) -> Steps[dict[str, Offsets]]:
    """Gather the contents of the files called `names` in each of `folders`, by path. Logs may be added and removed
    between two steps: a removed one is not in the result, one that has replaced it is, a new one may be missing. The
    entries of `unserved` partitions, which have no log, are kept."""
    found: dict[DataFolder, dict[str, Offsets]] = {folder: {name: {} for name in names} for folder in folders}
    seen: dict[TopicPartition, Log] = {}
    changes = logs.changes
    for count, (key, log) in enumerate(logs.walk(), 1):
        seen[key] = log
        home = homes.get(key)
        if home in found:
            for name, offsets in found[home].items():
                offset = offset_of(name, log)
                if offset is not None:
                    offsets[key] = offset
        if not count % ITEMS_PER_STEP:
            yield None
    contents: dict[str, Offsets] = {}
    held = list(unserved)
    for folder, files in found.items():
        for name, offsets in files.items():
            kept = _kept(name, folder)
            for begin in range(0, len(held), ITEMS_PER_STEP):
                offsets.update((key, kept[key]) for key in held[begin : begin + ITEMS_PER_STEP] if key in kept)
                yield None
            contents[f"{folder.path}/{name}"] = offsets
    if logs.changes == changes:
        return contents
    for key in [key for key, log in seen.items() if logs.get(key) is not log]:
        for offsets in contents.values():
            offsets.pop(key, None)
        if (home := homes.get(key)) in found:  # it is in another folder now, or has failed
            for name in names:
                present = logs.get(key)
                offset = _kept(name, home).get(key) if present is None else offset_of(name, present)
                if offset is not None:
                    contents[f"{home.path}/{name}"][key] = offset
    return contents
