"""Names of the folders inside a data folder, and their partitions.

    orders-0                                            a partition
    orders-0.<32 hex digits>-delete                     renamed so that its files can be unlinked later
    orders-0.<32 hex digits>-stray                      set aside: it should not be on this broker
    orders-0.<32 hex digits>-future                     the copy that is to replace orders-0 in another data folder

A topic name may itself hold dashes and dots. (Kafka's LocalLog.parseTopicPartitionName and logDirNameWithSuffix.)
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

MAX_NAME_LENGTH = 255
MAX_TOPIC_LENGTH = 249

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_MARKED = re.compile(r"(\S+)\.\S+-(delete|stray|future)")


class FolderKind(Enum):
    CURRENT = ""
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class PartitionFolder(NamedTuple):
    """The parts of a folder's name. The topic of a DELETE or STRAY folder may be shortened."""

    topic: str
    partition: int
    kind: FolderKind


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_folder_name(topic: str, partition: int, kind: FolderKind, unique_id: bytes) -> str:
    """Return the name that marks a partition's folder; `unique_id` is 16 bytes that were never used before.

    File systems limit names to 255 bytes, so a long topic is shortened, as Kafka does it. A FUTURE folder must keep its
    whole topic (it becomes the partition): if the name is too long for that, the system refuses it.
    """
    suffix = f"-{partition}.{unique_id.hex()}-{kind.value}"
    if kind is not FolderKind.FUTURE:
        topic = topic[: MAX_NAME_LENGTH - len(suffix)]
    return topic + suffix


def parse_folder_name(name: str) -> PartitionFolder | None:
    """Parse a name; None when it is not one that Kafka gives to a partition's folder."""
    kind = FolderKind.CURRENT
    if marked := _MARKED.fullmatch(name):
        name = marked[1]
        kind = FolderKind(marked[2])
    elif name.endswith(("-delete", "-stray", "-future")):
        return None
    topic, dash, digits = name.rpartition("-")
    if not dash or not _TOPIC.fullmatch(topic) or topic in (".", "..") or len(topic) > MAX_TOPIC_LENGTH:
        return None
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10 or str(int(digits)) != digits:
        return None
    partition = int(digits)
    return PartitionFolder(topic, partition, kind) if partition < 2**31 else None
