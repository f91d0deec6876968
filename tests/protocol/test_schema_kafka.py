"""gregor.protocol.schema against Apache Kafka's own message definitions, field by field and version by version."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol import messages
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.codec.model import FIXED, Field, Message, Struct, Versions
from gregor.protocol.errors import ErrorCode
from tests.support.kafka import java_command, kafka_jars

pytestmark = pytest.mark.jvm

# Messages that only brokers with ZooKeeper send, with the versions of 3.9: 4.x has removed them.
FROM_3_9 = ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "RequestHeader"]
KEYS_FROM_3_9 = ["OffsetCommitKey", "GroupMetadataKey"]
# Messages that had another name in 3.9.
OLD_NAMES = {
    "ListConfigResourcesRequest": "ListClientMetricsResourcesRequest",
    "ListConfigResourcesResponse": "ListClientMetricsResourcesResponse",
}
# Apache Kafka 4 has dropped the oldest versions of these; 3.9, and what is written here, begins at 0.
CUT_IN_4 = (
    *("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics", "DeleteTopics"),
    *("OffsetForLeaderEpoch", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs"),
    *("AlterReplicaLogDirs", "DescribeLogDirs", "AlterPartition", "WriteTxnMarkers"),
    *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
)
# Names became droppable when topic ids came: the rule of 4.3 applies here in all versions.
FROM_4_4 = {"ApiVersions": 5, "DeleteGroups": 3, "TxnOffsetCommit": 6}
"""Versions that 4.4 adds."""
TOPIC_IDS_IN_4 = ("ProduceRequest", "ProduceResponse", "OffsetCommitRequest", "OffsetCommitResponse")
TOPIC_IDS_IN_4_4 = ("TxnOffsetCommitRequest", "TxnOffsetCommitResponse")


@functools.cache
def definitions(version: str, jar: str) -> dict[str, Any]:
    """name -> definition, of every message in one of the jars."""
    found = {}
    with zipfile.ZipFile(kafka_jars(version) / f"{jar}-{version}.jar") as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def snake_case(name: str) -> str:
    name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc")
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def compare(schema: Message, definition: dict[str, Any], versions: Versions) -> None:
    """Every field of both sides, in those versions; a missing one, another order or another fact fails."""
    flexible = Versions.parse(definition["flexibleVersions"])
    assert schema.flexible.within(versions) == flexible.within(versions)
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    compare_fields(schema.name, schema, definition["fields"], shared, versions)


def compare_fields(
    path: str, struct: Struct, theirs: list[dict[str, Any]], shared: dict[str, Any], versions: Versions
) -> None:
    theirs = [field for field in theirs if their_versions(field).meets(versions)]
    ours = [field for field in struct.fields if field.versions.meets(versions)]
    assert [field.name for field in ours] == [snake_case(field["name"]) for field in theirs], path
    for field, their in zip(ours, theirs, strict=True):
        where = f"{path}.{field.name}"
        inside = field.versions.within(versions)
        assert facts(field, inside) == their_facts(their, inside), where
        if field.struct is not None:
            fields = their.get("fields") or shared[field.element]
            compare_fields(where, field.struct, fields, shared, inside)


def facts(field: Field, inside: Versions) -> dict[str, Any]:
    return {
        "type": field.type,
        "versions": inside,
        "nullable": field.nullable.within(inside),
        "default": field.default,
        "tag": field.tag,
        "tagged": field.tagged.within(inside),
        "ignorable": field.ignorable,
        "flexible": field.flexible.within(inside),
    }


def their_facts(their: dict[str, Any], inside: Versions) -> dict[str, Any]:
    def versions(key: str, default: str) -> Versions:
        return Versions.parse(their.get(key, default)).within(inside)

    return {
        "type": their["type"],
        "versions": their_versions(their).within(inside),
        "nullable": versions("nullableVersions", "none"),
        "default": their_default(their),
        "tag": their.get("tag"),
        "tagged": versions("taggedVersions", "none"),
        "ignorable": their.get("ignorable", False),
        "flexible": versions("flexibleVersions", "0+"),
    }


def their_versions(their: dict[str, Any]) -> Versions:
    return Versions.parse(their.get("versions") or their["taggedVersions"])


def their_default(their: dict[str, Any]) -> Any:
    kind, default = their["type"], their.get("default")
    if default == "null" or kind == "records":
        return None
    if kind == "string":
        return default or ""
    if kind == "bytes":
        return b""
    if kind == "bool":
        return default in (True, "true")
    if kind == "uuid":
        return bytes(16)
    if kind == "float64":
        return float(default or 0)
    return int(str(default or 0), 0) if kind in FIXED else ()


def api_of(name: str) -> str:
    return name.removesuffix("Request").removesuffix("Response")


API_MESSAGES = [name for name in messages.message_names() if name.endswith(("Request", "Response", "Header"))]
SERVED = [name for name in API_MESSAGES if not name.startswith(tuple(FROM_3_9))]


@pytest.mark.parametrize("name", SERVED)
def test_fields_equal_those_of_4_3(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("4.3.1", "kafka-clients")[name]
    valid = Versions.parse(definition["validVersions"])
    cut = api_of(name) in CUT_IN_4
    assert (valid.first > 0) == cut
    last = FROM_4_4.get(api_of(name), valid.last)
    assert schema.versions == Versions(0 if cut else valid.first, last)
    assert schema.api_key == definition.get("apiKey")
    if name in TOPIC_IDS_IN_4_4:
        make_ignorable(definition["fields"], {"Name"})
    compare(schema, definition, valid)


@pytest.mark.parametrize("name", SERVED)
def test_fields_equal_those_of_4_4(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("4.4.0", "kafka-clients")[name]
    valid = Versions.parse(definition["validVersions"])
    assert schema.versions.last == valid.last
    if name == "TxnOffsetCommitRequest":
        # It has the name that OffsetCommit has for it: a number of either protocol.
        for field in definition["fields"]:
            field["name"] = field["name"].removesuffix("OrMemberEpoch")
    compare(schema, definition, valid)


@pytest.mark.parametrize("name", [name for name in API_MESSAGES if name not in SERVED])
def test_controller_requests_equal_those_of_3_9(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("3.9.1", "kafka-clients")[name]
    valid = Versions.parse(definition["validVersions"])
    assert schema.versions == Versions(valid.first, valid.last)
    assert schema.api_key == definition.get("apiKey")
    compare(schema, definition, schema.versions)


@pytest.mark.parametrize("name", [name for name in SERVED if not name.endswith("Header")])
def test_versions_that_4_3_no_longer_knows_equal_those_of_3_9(name: str) -> None:
    definition = definitions("3.9.1", "kafka-clients")[OLD_NAMES.get(name, name)]
    schema = messages.schema(name)
    old = Versions.parse(definition["validVersions"])
    newer = Versions.parse(definitions("4.3.1", "kafka-clients")[name]["validVersions"])
    assert schema.versions.first == old.first
    assert schema.api_key == definition["apiKey"]
    if newer.first > old.first:
        if name in TOPIC_IDS_IN_4:
            make_ignorable(definition["fields"], {"Name"})
        compare(schema, definition, Versions(old.first, newer.first - 1))


def make_ignorable(fields: list[dict[str, Any]], names: set[str]) -> None:
    for field in fields:
        if field["name"] in names:
            field["ignorable"] = True
        make_ignorable(field.get("fields", []), names)


CONSUMER_GROUP_RECORDS = [name for name, file in messages.OTHERS.items() if file == "records_consumer_group"]


@pytest.mark.parametrize("name", ["OffsetCommitValue", "GroupMetadataValue", *CONSUMER_GROUP_RECORDS])
def test_values_of_the_offsets_topic_equal_those_of_4_3(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("4.3.1", "kafka-group-coordinator")[name]
    assert schema.versions == Versions.parse(definition["validVersions"])
    compare(schema, definition, schema.versions)


@pytest.mark.parametrize("name", ["TransactionLogKey", "TransactionLogValue"])
def test_records_of_the_transaction_topic_equal_those_of_4_3(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("4.3.1", "kafka-transaction-coordinator")[name]
    assert schema.versions == Versions.parse(definition["validVersions"])
    compare(schema, definition, schema.versions)


@pytest.mark.parametrize("name", ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"])
def test_the_data_of_consumers_equals_that_of_4_3(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("4.3.1", "kafka-clients")[name]
    assert schema.versions == Versions.parse(definition["validVersions"])
    compare(schema, definition, schema.versions)


@pytest.mark.parametrize("name", KEYS_FROM_3_9)
def test_keys_of_the_offsets_topic_equal_those_of_3_9(name: str) -> None:
    schema = messages.schema(name)
    definition = definitions("3.9.1", "kafka-group-coordinator")[name]
    assert schema.versions == Versions.parse(definition["validVersions"])
    compare(schema, definition, schema.versions)


def test_api_keys_equal_those_of_4_3() -> None:
    theirs = {
        definition["apiKey"]: snake_case(name.removesuffix("Request")).upper()
        for name, definition in definitions("4.3.1", "kafka-clients").items()
        if name.endswith("Request") and "apiKey" in definition
    }
    # Gone since 4.0, yet never to be used again; brokers with ZooKeeper speak them.
    theirs |= {4: "LEADER_AND_ISR", 5: "STOP_REPLICA", 6: "UPDATE_METADATA", 7: "CONTROLLED_SHUTDOWN"}
    assert {key.value: key.name for key in ApiKey} == theirs


DUMP_ERRORS = """
public class DumpErrors {
    public static void main(String[] arguments) {
        for (var error : org.apache.kafka.common.protocol.Errors.values()) {
            boolean retriable = error.exception() instanceof org.apache.kafka.common.errors.RetriableException;
            System.out.println(error.name() + " " + error.code() + " " + retriable);
        }
    }
}
"""


@pytest.mark.slow
def test_error_codes_equal_those_of_4_3(tmp_path: Path) -> None:
    source = tmp_path / "DumpErrors.java"
    source.write_text(DUMP_ERRORS)
    done = subprocess.run(java_command(str(source)), capture_output=True, text=True, timeout=60, check=True)
    theirs = [line.split() for line in done.stdout.splitlines()]
    assert {(name, int(code), retriable == "true") for name, code, retriable in theirs} == {
        (code.name, code.value, code.retriable) for code in ErrorCode
    }
