"""Offset checkpoints of a data folder: one offset per partition, in a text file that is replaced as a whole.

Layout (Kafka's CheckpointFile and OffsetCheckpointFile), UTF-8, one item a line:

    0                       version, always 0
    2                       number of the lines that follow
    orders 0 4711           topic, partition, offset, separated by white space
    orders 1 12

Kafka creates the file empty before it first writes it: no bytes at all, or a version alone, mean "no entries".
"""

from __future__ import annotations

from collections.abc import Mapping

from gregor.protocol.topic_partition import TopicPartition

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
"""Everything below these offsets was fsynced: recovery starts there."""

LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
"""Only of partitions whose log starts inside their first segment; of the others the name of the segment has it."""

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"

CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
"""Everything below these offsets has been compacted. Only of partitions that were ever compacted."""

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1

Offsets = dict[TopicPartition, int]


class MalformedFile(ValueError):
    """A file of a data folder is malformed. `str()` names the file, the line and the reason."""

    def __init__(self, path: str, line_number: int | None, reason: str) -> None:
        super().__init__(f"{path}{'' if line_number is None else f', line {line_number}'}: {reason}")
        self.path = path
        self.line_number = line_number
        self.reason = reason


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Format the whole file. Topic names are Kafka's legal ones, so they have no white space."""
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    lines.append("")
    return "\n".join(lines).encode()


def parse_offsets(data: bytes, path: str) -> Offsets:
    """Parse the entries of a file; `path` is only named in the MalformedFile that invalid content raises."""
    lines = data.splitlines()
    if not lines:
        return {}
    version = _number(lines[0])
    if version != 0:
        raise MalformedFile(path, 1, f"version 0 expected, found {_shown(lines[0])}")
    if len(lines) == 1:
        return {}
    count = _number(lines[1])
    if count is None:
        raise MalformedFile(path, 2, f"number of entries expected, found {_shown(lines[1])}")
    offsets: Offsets = {}
    for line_number, line in enumerate(lines[2:], start=3):
        parts = line.split()
        partition = _number(parts[1]) if len(parts) == 3 else None
        offset = _number(parts[2]) if len(parts) == 3 else None
        if partition is None or offset is None or partition > MAX_PARTITION or offset > MAX_OFFSET:
            raise MalformedFile(path, line_number, f"topic, partition and offset expected, found {_shown(line)}")
        try:
            topic = parts[0].decode()
        except UnicodeDecodeError:
            raise MalformedFile(path, line_number, f"topic is not UTF-8: {_shown(line)}") from None
        offsets[TopicPartition(topic, partition)] = offset
    if len(lines) - 2 != count:
        raise MalformedFile(path, None, f"line 2 announces {count} entries, {len(lines) - 2} follow")
    return offsets


def _number(text: bytes) -> int | None:
    # Stricter than int(), which accepts "1_000"; short enough that a long run of digits costs nothing.
    return int(text) if text.isdigit() and len(text) <= 19 else None


def _shown(line: bytes) -> str:
    return repr(line[:80].decode(errors="backslashreplace"))
