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
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gregor.spark_jobs.client.cluster import Cluster
from gregor.spark_jobs.client.offsets import commit_offsets
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset, offsets_to_json
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.stream import group_of

VERSION = "v1"
_LINES_BEFORE_SOURCES = 2


def last_position(checkpoint: str, source: int = 0) -> StreamOffset:
    """Return the end of the last batch that was completed; raise JobError if there is none.

    `source` is the number of the source in the query. A batch that was begun but not completed is not counted: Spark
    repeats it.
    """
    folder = _local_folder(checkpoint)
    completed = _batches(folder / "commits")
    begun = _batches(folder / "offsets")
    done = [number for number in begun if number in completed]
    if not done:
        raise JobError(f"the checkpoint {checkpoint} has no completed batch, so no offset to continue from")
    path = folder / "offsets" / str(max(done))
    lines = path.read_text().splitlines()
    if not lines or lines[0] != VERSION:
        raise JobError(f"{path} has the format {lines[0] if lines else ''!r}; only {VERSION} is known")
    positions = lines[_LINES_BEFORE_SOURCES:]
    if not 0 <= source < len(positions):
        raise JobError(
            f"{path} has the offsets of {len(positions)} sources, with the numbers from 0; there is no {source}"
        )
    try:
        value = json.loads(positions[source])
    except ValueError:
        raise JobError(f"{path} has no offset for the source {source}") from None
    if not isinstance(value, dict):
        raise JobError(f"source {source} of {path} has the offset {value!r}, which is not one of topics")
    return StreamOffset.from_json(value)


def positions_in(text: str) -> list[StreamOffset]:
    """Return the positions of the sources in a file of `offsets`, of those that have one of topics."""
    values = []
    for line in text.splitlines()[_LINES_BEFORE_SOURCES:]:
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
    made = SourceOptions.from_options(options, streaming=True)
    group_id = group_of(made)
    if group_id is None:
        raise JobError("the options name no group: give kafka.group.id or groupIdPrefix")
    position = last_position(checkpoint, source)
    with Cluster(made.settings) as cluster:
        commit_offsets(cluster, group_id, position.offsets)


def _local_folder(checkpoint: str) -> Path:
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        raise JobError(f"{checkpoint} is not on this machine; copy its folders offsets and commits, and name the copy")
    folder = Path(unquote(parts.path) if parts.scheme else checkpoint)
    if not (folder / "offsets").is_dir():
        raise JobError(f"{checkpoint} is not a checkpoint: it has no folder named offsets")
    return folder


def _batches(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("*") if path.name.isdecimal()}
