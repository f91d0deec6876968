"""The tasks' side of the dead-letter topic, on a broker in memory. No JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiMessage, ProduceRequest
from gregor.protocol.records.batch import Record
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.dead_letters import producer_options
from gregor.spark_jobs.jobs.common.letters import Letters
from gregor.spark_jobs.sink.partitioner import partition_for_key
from tests.spark_jobs.sink.fake_broker import FakeBroker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LETTER = pa.struct(
    [
        *[("raw_key", pa.binary()), ("raw_value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())],
        *[("offset", pa.int64()), ("headers", HEADERS), ("problem", pa.string())],
    ]
)


def letter(offset: int, value: bytes, key: bytes | None = None, **more: Any) -> Mapping[str, Any]:
    where = {"topic": "in", "partition": 3, "offset": offset}
    return {"raw_key": key, "raw_value": value, **where, "headers": None, "problem": "it is bad", **more}


def store(broker: FakeBroker, *letters: Mapping[str, Any], client: Mapping[str, str] | None = None) -> None:
    with broker.cluster() as cluster:
        options = producer_options("fake:9092", client or {})
        Letters("route", "dead", options, cluster).store(pa.array(letters, LETTER))


def stored(broker: FakeBroker, partition: int = 0) -> Iterator[Record]:
    return broker.topics["dead"][partition].committed()


def test_a_letter_has_the_record_as_it_was_its_origin_and_the_reason() -> None:
    broker = FakeBroker({"dead": 1})
    large = bytes(1_000_001)
    own = [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]
    store(broker, letter(5, b"{", b"k", headers=own), letter(6, large))
    first, second = stored(broker)
    assert (first.key, first.value, second.key, second.value) == (b"k", b"{", None, large)
    assert [(name, value) for name, value in first.headers] == [
        ("h", b"1"),
        ("none", None),
        ("__connect.errors.topic", b"in"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"5"),
        ("__connect.errors.connector.name", b"route"),
        ("__connect.errors.exception.message", b"it is bad"),
    ]


def test_letters_have_the_partitions_of_their_keys() -> None:
    broker = FakeBroker({"dead": 3})
    keys = [b"%d" % number for number in range(20)]
    store(broker, *[letter(number, b"{", key) for number, key in enumerate(keys)])
    for partition in range(3):
        assert [one.key for one in stored(broker, partition)] == [
            k for k in keys if partition_for_key(k, 3) == partition
        ]


def test_a_missing_topic_is_made_if_the_brokers_permit_it() -> None:
    broker = FakeBroker({})
    broker.creates_topics = True
    store(broker, letter(5, b"{"))
    assert [one.value for one in stored(broker)] == [b"{"]
    broker = FakeBroker({})
    with pytest.raises(JobError, match="the dead-letter topic dead does not exist, and the brokers have not made it"):
        store(broker, letter(5, b"{"))


def test_a_refused_letter_is_named_with_the_remedy() -> None:
    broker = FakeBroker({"dead": 1})

    def refuse(_number: int, request: ApiMessage) -> None:
        if isinstance(request, ProduceRequest):
            raise KafkaFailure(ErrorCode.MESSAGE_TOO_LARGE, "a batch was not written; raise max.message.bytes")

    broker.faults = refuse
    with pytest.raises(JobError) as refused:
        store(broker, letter(5, b"{"), letter(6, bytes(10)))
    assert str(refused.value) == (
        "2 records were not stored in the dead-letter topic dead, the largest one in-3 at offset 6 with 10 bytes: "
        "a batch was not written; raise max.message.bytes"
    )


def test_settings_are_those_of_java_and_a_limit_of_the_user_counts() -> None:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username='a' password='b';"
    client = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    options = producer_options("h:1", client | {"kafka.sasl.jaas.config": plain})
    assert options.settings.security.security_protocol == "SASL_PLAINTEXT"
    with pytest.raises(JobError, match=r"a record for dead-0 has \d+ bytes, which is more than kafka.max.request.size"):
        store(FakeBroker({"dead": 1}), letter(5, bytes(2000)), client={"kafka.max.request.size": "1000"})
    with pytest.raises(JobError, match="the dead-letter topic cannot be written: kafka.acks='1' would lose or"):
        producer_options("h:1", {"kafka.acks": "1"})
