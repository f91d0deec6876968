"""JSON files with partitions, as Kafka's tools read them: `{"partitions": [{"topic": "t", "partition": 0}]}`."""

from __future__ import annotations

import json
from typing import Any

from gregor.broker.cli.errors import CommandError
from gregor.protocol.topic_partition import TopicPartition


def load_partitions(path: str, *, offsets: bool) -> dict[TopicPartition, int]:
    """Return the partitions of a file, each with its offset (0 without `offsets`).

    Raise CommandError if the file is malformed or has a partition twice.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data: Any = json.load(file)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON: {error}.") from None
    if not isinstance(data, dict) or not isinstance(data.get("partitions"), list):
        raise CommandError(f'{path} must contain {{"partitions": [..]}}.')
    if offsets and data.get("version", 1) != 1:
        raise CommandError(f"{path} has version {data['version']}; only version 1 is supported.")
    found: dict[TopicPartition, int] = {}
    for entry in data["partitions"]:
        example = '{"topic": "orders", "partition": 0' + (', "offset": 5}' if offsets else "}")
        fields = entry if isinstance(entry, dict) else {}
        topic, partition, offset = fields.get("topic"), fields.get("partition", ""), fields.get("offset", 0)
        whole = _is_int(partition, 2**31) and _is_int(offset, 2**63) and (not offsets or "offset" in fields)
        if not isinstance(topic, str) or not whole:
            raise CommandError(f"{path}: {json.dumps(entry)} is not a partition; give {example}.")
        key = TopicPartition(topic, int(partition))
        if key in found:
            raise CommandError(f"{path} has the partition {topic}-{partition} twice.")
        found[key] = int(offset)
    return found


def _is_int(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
