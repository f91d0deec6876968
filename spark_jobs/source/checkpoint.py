"""The offsets in a checkpoint of Spark, of this source or of the official connector.

A checkpoint has a file per batch in `offsets`, written before the batch, and one in `commits`, written after it. The
files in `offsets` (class OffsetSeqLog) have a line with the version, one with metadata, and one per source with the end
of the batch as JSON, or `-` for a source without one:

    v1
    {"batchWatermarkMs":0, ...}
    {"topic":{"0":23}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.offsets import commit_offsets
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset, offsets_to_json
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import group_of

VERSION = "v1"
_LINES_BEFORE_SOURCES = 2


class CheckpointFiles(Protocol):
    """The files of a checkpoint, on whatever file system it is."""

    @property
    def path(self) -> str:
        """The path of the checkpoint, for messages."""

    def names(self, pattern: str) -> list[str]:
        """Return the names of the files that match a pattern below the checkpoint."""

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file."""


class LocalFiles:
    """The files of a checkpoint on this machine."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = _local_folder(checkpoint)
        self.path = checkpoint

    def names(self, pattern: str) -> list[str]:
        return [path.name for path in self._folder.glob(pattern)]

    def read(self, name: str) -> str | None:
        path = self._folder / name
        return path.read_text() if path.exists() else None


def last_position(checkpoint: str, source: int = 0) -> StreamOffset:
    """Return the end of the last batch that was completed; raise JobError if there is none.

    `source` is the number of the source in the query. A batch that was begun but not completed is not counted: Spark
    repeats it.
    """
    positions = last_positions(LocalFiles(checkpoint))
    if not positions:
        raise JobError(
            f"the checkpoint {checkpoint} has no completed batch, so no offset to continue from: start the other query "
            "where this one was to start"
        )
    if not 0 <= source < len(positions):
        raise JobError(
            f"{checkpoint} has the offsets of {len(positions)} sources, with the numbers from 0; there is no {source}"
        )
    try:
        value = json.loads(positions[source])
    except ValueError:
        raise JobError(
            f"{checkpoint} has no offset for the source {source}, which has completed no batch, or reads no topics; "
            "give the number of another source"
        ) from None
    if not isinstance(value, dict):
        raise JobError(
            f"source {source} of {checkpoint} has the offset {value!r}, which is not one of topics; give the number of "
            "another source"
        )
    return StreamOffset.from_json(value)


def last_positions(files: CheckpointFiles) -> list[str]:
    """Return the end of the last completed batch for each source, as its line in the checkpoint; none without one."""
    completed = _batches(files, "commits")
    done = [number for number in _batches(files, "offsets") if number in completed]
    if not done:
        return []
    name = f"offsets/{max(done)}"
    lines = (files.read(name) or "").splitlines()
    if not lines or lines[0] != VERSION:
        raise JobError(
            f"{files.path}/{name} has the format {lines[0] if lines else ''!r}; only {VERSION} is known, for "
            "which a query of Spark 4.2 needs spark.sql.streaming.offsetLog.formatVersion=1 from its start on"
        )
    return lines[_LINES_BEFORE_SOURCES:]


def positions_of(lines: Iterable[str]) -> list[StreamOffset]:
    """Return the positions in the lines of the sources, of those that have one of topics."""
    values = []
    for line in lines:
        try:
            values.append(json.loads(line))
        except ValueError:  # `-`, or the position of a source of another kind
            continue
    return [StreamOffset.from_json(value) for value in values if isinstance(value, dict)]


def starting_offsets(checkpoint: str, source: int = 0) -> str:
    """Return the option startingOffsets by which another query continues where the query of a checkpoint ended."""
    return json.dumps(offsets_to_json(last_position(checkpoint, source).offsets), separators=(",", ":"))


def commit_last_batch(checkpoint: str, options: Mapping[str, str], source: int = 0) -> None:
    """Commit the end of the last completed batch to the group of the options, once the query has ended.

    While a query runs, Spark lets the source commit a batch when it plans the next one, which never comes after the
    last. Raise JobError if the options name no group.
    """
    if group_of(SourceOptions.from_options(options, streaming=True)) is None:
        raise JobError("the options name no group: give kafka.group.id or groupIdPrefix")
    _commit(options, last_position(checkpoint, source))


def commit_last_batches(files: CheckpointFiles, options: Mapping[str, str]) -> list[str]:
    """Commit the end of the last completed batch of every source of a query; return the groups, none if none is named.

    The options are those that all sources have. Each source subscribes to the topics of its position, unless the
    options select topics in another way.
    """
    selects = {"subscribepattern", "assign"} & {key.lower() for key in options}
    groups: dict[str, None] = {}
    for position in positions_of(last_positions(files)):
        topics = {"subscribe": ",".join(sorted({partition.topic for partition in position.offsets}))}
        if position.offsets:
            group_id = _commit({**options, **({} if selects else topics)}, position)
            groups |= {} if group_id is None else {group_id: None}
    return list(groups)


def _commit(options: Mapping[str, str], position: StreamOffset) -> str | None:
    """Commit a position; return its group, None if the options name none."""
    made = SourceOptions.from_options(options, streaming=True)
    group_id = group_of(made)
    if group_id is not None:
        with Cluster(made.settings) as cluster:
            commit_offsets(cluster, group_id, position.offsets)
    return group_id


def _local_folder(checkpoint: str) -> Path:
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        raise JobError(f"{checkpoint} is not on this machine; copy its folders offsets and commits, and name the copy")
    folder = Path(unquote(parts.path) if parts.scheme else checkpoint)
    if not (folder / "offsets").is_dir():
        raise JobError(f"{checkpoint} is not a checkpoint: it has no folder named offsets")
    return folder


def _batches(files: CheckpointFiles, folder: str) -> set[int]:
    return {int(name) for name in files.names(f"{folder}/*") if name.isdecimal()}
