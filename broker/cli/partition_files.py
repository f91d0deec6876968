"""JSON files that name partitions, as Kafka's tools take them: `{"partitions": [{"topic": "t", "partition": 0}]}`."""

from __future__ import annotations

import json
from typing import Any

from gregor.broker.cli.errors import CommandError
from gregor.protocol.topic_partition import TopicPartition


def load_partitions(path: str, *, offsets: bool) -> dict[TopicPartition, int]:
    """The partitions of a file, each with its offset (0 unless the file is to have `offsets`). CommandError when it is
    something else, or names a partition twice."""
    try:
        with open(path, encoding="utf-8") as file:
            data: Any = json.load(file)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is no JSON: {error}.") from None
    if not isinstance(data, dict) or not isinstance(data.get("partitions"), list):
        raise CommandError(f'{path} must hold {{"partitions": [..]}}.')
    if offsets and data.get("version", 1) != 1:
        raise CommandError(f"{path} is of version {data['version']}; only version 1 is known.")
    found: dict[TopicPartition, int] = {}
    for entry in data["partitions"]:
        example = '{"topic": "orders", "partition": 0' + (', "offset": 5}' if offsets else "}")
        fields = entry if isinstance(entry, dict) else {}
        topic, partition, offset = fields.get("topic"), fields.get("partition", ""), fields.get("offset", 0)
        whole = _is_int(partition, 2**31) and _is_int(offset, 2**63) and (not offsets or "offset" in fields)
        if not isinstance(topic, str) or not whole:
            raise CommandError(f"{path}: {json.dumps(entry)} is no partition; give {example}.")
        place = TopicPartition(topic, int(partition))
        if place in found:
            raise CommandError(f"{path} names the partition {topic}-{partition} twice.")
        found[place] = int(offset)
    return found


def _is_int(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
