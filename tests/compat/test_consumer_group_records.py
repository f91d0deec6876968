"""Records that the coordinator writes for groups of the consumer protocol, read by Apache Kafka's kafka-dump-log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.ids import uuid_to_text
from tests.coordinator.group.consumer.context import ConsumerContext
from tests.support.kafka_tools import KafkaTools

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

DUMP = {"4.3.1": "org.apache.kafka.tools.DumpLogSegments", "3.9.1": "kafka.tools.DumpLogSegments"}
RECORD = re.compile(r"^\| offset: (\d+) .* key: (\{.*\}) payload: (\{.*\}|<DELETE>)$")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsumerContext, Path]]:
    """The log of a group of two members, by name and by expression; one of them revokes, the other one leaves."""
    with ConsumerContext({"orders": 4, "returns": 2}) as context:
        first = context.consumer("m-1", topics=["orders"], instance="static-1", rack="r1")
        second = context.consumer("m-2", topics=(), regex="orders|ret.*")
        context.settle_group(first, second)
        assert second.leave() == 0
        context.settle_group(first)
        log = tmp_path_factory.mktemp("group") / f"{0:020d}.log"
        log.write_bytes(b"".join(context.log.batches[context.coordinator.partition_for("g")]))
        yield context, log


def decoded(version: str, log: Path) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
    """Return the type, the key and the value of each record that the tool of that release decodes."""
    with KafkaTools(version) as tools:
        said = tools.run(DUMP[version], "--files", str(log), "--offsets-decoder")
    assert said.code == 0, said
    assert "Error at offset" not in said.out
    records = []
    for line in said.out.splitlines():
        if found := RECORD.match(line):
            key = json.loads(found[2])
            value = None if found[3] == "<DELETE>" else json.loads(found[3])
            assert value is None or value["version"] == "0"
            records.append((int(key["type"]), key["data"], value and value["data"]))
    return records


def test_4_3_decodes_every_record(written: tuple[ConsumerContext, Path]) -> None:
    context, log = written
    records = decoded("4.3.1", log)
    assert {kind for kind, _, _ in records} == {3, 5, 6, 7, 8, 16}
    assert all(key["groupId"] == "g" for _, key, _ in records)
    last = {(kind, key.get("memberId", key.get("regularExpression"))): value for kind, key, value in records}
    group = context.found()
    assert last[3, None] == {"epoch": group.epoch, "metadataHash": group.metadata_hash}
    assert last[6, None] is not None and last[6, None]["assignmentEpoch"] == group.target_epoch
    member = last[5, "m-1"]
    assert member is not None and "classicMemberMetadata" in member
    assert (member["instanceId"], member["rackId"], member["subscribedTopicNames"]) == ("static-1", "r1", ["orders"])
    assert member["classicMemberMetadata"] is None
    orders = {"topicId": uuid_to_text(context.id_of("orders")), "partitions": [0, 1, 2, 3]}
    assert last[7, "m-1"] == {"topicPartitions": [orders]}
    current = last[8, "m-1"]
    assert current is not None and current["memberEpoch"] == group.epoch and current["state"] == 0
    assert current["partitionsPendingRevocation"] == []
    (owned,) = current["assignedPartitions"]
    assert len(owned.pop("assignmentEpochs")) == 4
    assert owned == orders
    # Nothing is left of the member that left.
    assert [last[kind, "m-2"] for kind in (5, 7, 8)] == [None] * 3
    assert last[16, "orders|ret.*"] is None


def test_3_9_decodes_all_but_expressions(written: tuple[ConsumerContext, Path]) -> None:
    """It knows neither the record of expressions nor the tags that came later, and passes over both."""
    _, log = written
    new, old = decoded("4.3.1", log), decoded("3.9.1", log)
    assert {kind for kind, _, _ in old} == {3, 5, 6, 7, 8}
    for kind, _, value in new:
        if kind == 3 and value is not None:
            del value["metadataHash"]
        elif kind == 6 and value is not None:
            value.pop("assignmentTimestamp", None)
        elif kind == 8 and value is not None:
            for topic in value["assignedPartitions"] + value["partitionsPendingRevocation"]:
                topic.pop("assignmentEpochs", None)
    assert old == [record for record in new if record[0] != 16]
