"""Names of settings of Kafka's clients: unknown ones, and those without an effect."""

from __future__ import annotations

import dataclasses

import pytest

from gregor.spark_jobs.client.known_settings import (
    CONSUMER,
    IN_SINK,
    IN_SOURCE,
    KNOWN,
    OF_LIBRDKAFKA,
    PRODUCER,
    SECURITY,
    SHARED,
    check_known,
    lines_without_effect,
)
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError

TEXTS = {
    **{"bootstrap.servers": "a:1", "isolation.level": "read_committed", "check.crcs": "true"},
    **{"client.id": "c", "group.id": "g"},
}
REFUSED_BY_SOURCE = {
    *("auto.offset.reset", "enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer")
}
OF_SINK = {
    *("acks", "batch.size", "compression.type", "enable.idempotence", "max.request.size", "transaction.timeout.ms"),
    *("key.serializer", "partitioner.class", "partitioner.ignore.keys", "transaction.two.phase.commit.enable"),
    *("transactional.id", "value.serializer"),
}
"""Used or refused."""


def unused(names: frozenset[str]) -> set[str]:
    """Return the names that the client itself does not use."""
    given = {f"kafka.{name}": TEXTS.get(name, "7") for name in names | {"bootstrap.servers"}}
    return {name for name, _ in ClientSettings.from_options(given).other}


def test_every_setting_is_used_or_refused_or_has_a_reason() -> None:
    of_client = unused(SHARED | CONSUMER)
    assert of_client and of_client - REFUSED_BY_SOURCE - IN_SOURCE.keys() == set()
    assert PRODUCER - IN_SOURCE.keys() == set()
    assert unused(SHARED | PRODUCER) - OF_SINK - IN_SINK.keys() == set()
    assert (IN_SOURCE.keys() | IN_SINK.keys()) - KNOWN == set()


def test_no_setting_that_the_client_uses_has_a_reason() -> None:
    used = (SHARED | CONSUMER) - unused(SHARED | CONSUMER)
    assert len(used) >= len(dataclasses.fields(ClientSettings)) - 2
    assert used & IN_SOURCE.keys() == set()
    assert {"fetch.max.wait.ms", "fetch.max.bytes", "max.partition.fetch.bytes"} <= used
    assert not used & {"client.rack", "fetch.min.bytes"}
    assert OF_SINK & IN_SINK.keys() == set()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("kafka.max.pol.records", "the option kafka.max.pol.records is no setting .* name is kafka.max.poll.records"),
        ("KAFKA.Fetch.Min.Byte", "the option kafka.fetch.min.byte is .*: the nearest name is kafka.fetch.min.bytes"),
        ("kafka.ssl.truststore.locaton", "the nearest name is kafka.ssl.truststore.location"),
        ("kafka.ssl.ca.location", "is named as in librdkafka; the name here is kafka.ssl.truststore.location"),
        ("kafka.sasl.username", "is named as in librdkafka; the name here is kafka.sasl.jaas.config"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_one(key: str, text: str) -> None:
    with pytest.raises(JobError, match=text):
        check_known({"subscribe": "t", "kafka.group.id": "g", key: "1"})


def test_names_of_plugins_are_accepted_and_reported() -> None:
    names = ["config.providers.file.class", "metrics.jmx.include", "my.interceptor.topic"]
    check_known({f"kafka.{name}": "1" for name in names})
    for reasons in (IN_SOURCE, IN_SINK):
        lines = lines_without_effect(names, reasons, "this query")
        assert [line.split()[0] for line in lines] == [f"kafka.{name}" for name in names]
        assert lines[0].endswith("no client of Kafka has such a setting, and plug-ins of clients are not loaded.")
    assert set(OF_LIBRDKAFKA.values()) <= KNOWN and not OF_LIBRDKAFKA.keys() & KNOWN


def test_known_names_of_every_client_are_accepted() -> None:
    check_known({f"kafka.{name}": "1" for name in KNOWN} | {"subscribe": "t"})
    assert {"sasl.jaas.config", "ssl.truststore.location", "security.protocol"} <= SECURITY


def test_lines_name_the_setting_and_the_reason() -> None:
    names = ["fetch.max.bytes", "max.poll.records", "linger.ms"]
    assert lines_without_effect(names, IN_SOURCE, "this query") == [
        "kafka.max.poll.records has no effect on this query: rows are not polled one by one; maxRecordsPerPartition "
        "limits the offsets of a task.",
        "kafka.linger.ms has no effect on this query: it is a setting of producers.",
    ]
    assert lines_without_effect(names, IN_SINK, "the sink") == [
        "kafka.fetch.max.bytes has no effect on the sink: it is a setting of consumers.",
        "kafka.max.poll.records has no effect on the sink: it is a setting of consumers.",
        "kafka.linger.ms has no effect on the sink: each task sends a batch when it is full, and its last ones at its "
        "end.",
    ]
