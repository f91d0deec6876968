"""DescribeLogDirs (key 35), versions 0 to 5: the data folders, their partitions with sizes, and their volumes.

- 2 flexible; 3 an error of the whole response; 4 total and usable bytes of the volume (KIP-827); 5 whether the folder
  is closed to new partitions (KIP-1066), which is never so here.
- A failed folder has KAFKA_STORAGE_ERROR and no partitions.
- A partition that moves to another folder is listed twice: as it is, and as the unfinished copy, marked as future.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call, LogDirsContext
    from gregor.storage.folders.data_folder import DataFolder

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


@handles(ApiKey.DESCRIBE_LOG_DIRS, 0, 5)
async def describe_log_dirs(
    broker: LogDirsContext, request: DescribeLogDirsRequest, call: Call
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    folders = broker.logs.folders
    topics_of: dict[str, list[Topic]] = {folder.path: [] for folder in folders}
    topics: dict[tuple[str, str], Topic] = {}
    turns = broker.gate.turns()
    for path, topic, index, size_bytes, offset_lag, is_future in broker.logs.describe():
        if wanted is None or (topic, index) in wanted:
            described = topics.get((path, topic))
            if described is None:
                described = topics[path, topic] = Topic(name=topic)
                topics_of[path].append(described)
            described.partitions.append(
                Partition(
                    partition_index=index, partition_size=size_bytes, offset_lag=offset_lag, is_future_key=is_future
                )
            )
        await turns.next()
    volumes = await broker.background.run(_volumes, folders)
    results = []
    for folder, volume in zip(folders, volumes, strict=True):
        name = folder.absolute_path
        if folder.failure is not None or volume is None:
            results.append(Result(log_dir=name, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            total, usable = volume
            results.append(Result(log_dir=name, topics=topics_of[folder.path], total_bytes=total, usable_bytes=usable))
    return DescribeLogDirsResponse(results=results)


def _volumes(folders: Sequence[DataFolder]) -> list[tuple[int, int] | None]:
    return [_volume(folder) for folder in folders]


def _volume(folder: DataFolder) -> tuple[int, int] | None:
    """Return (total, usable) bytes of the folder's volume; None if the system does not report them."""
    try:
        volume = os.statvfs(folder.path)
    except OSError:
        return None
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
