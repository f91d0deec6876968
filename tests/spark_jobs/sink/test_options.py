"""Options of the sinks: names, defaults, and what is refused."""

import pickle

import pytest

from gregor.protocol.records import compression
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.sink.foreach_batch import at_least_once, exactly_once
from gregor.spark_jobs.sink.options import SinkOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_options_are_those_of_the_connector_and_of_the_producer() -> None:
    options = SinkOptions.from_options(
        SERVERS
        | {
            "topic": "t",
            "stateTopic": "s",
            "maxAttempts": "5",
            "kafka.transaction.timeout.ms": "1000",
            "kafka.batch.size": "100",
            "kafka.max.request.size": "200",
            "kafka.compression.type": "lz4",
            "kafka.acks": "all",
            "kafka.linger.ms": "5",
        }
    )
    assert (options.topic, options.state_topic, options.max_attempts) == ("t", "s", 5)
    assert (options.transaction_timeout_ms, options.batch_bytes, options.max_request_bytes) == (1000, 100, 200)
    assert options.codec == compression.LZ4
    assert pickle.loads(pickle.dumps(options)) == options


def test_defaults() -> None:
    options = SinkOptions.from_options(SERVERS)
    assert (options.topic, options.state_topic, options.max_attempts) == (None, "_gregor_spark_batches", 3)
    assert (options.transaction_timeout_ms, options.codec) == (60_000, compression.NONE)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("topics", "t", "the sink has no option 'topics'; it has topic, stateTopic, maxAttempts and kafka"),
        ("topic", "a b", "topic='a b' names no topic"),
        ("maxAttempts", "0", "maxAttempts='0' is not a whole number from 1"),
        ("kafka.acks", "1", "kafka.acks='1' would lose or repeat records"),
        ("kafka.enable.idempotence", "false", "would lose or repeat records"),
        ("kafka.transactional.id", "x", "an argument of exactly_once"),
        ("kafka.partitioner.class", "x", "does not accept kafka.partitioner.class"),
        ("kafka.compression.type", "rar", "is none of none, gzip, snappy, lz4, zstd"),
        ("kafka.security.protocol", "SASL_PLAINTEXT", "sasl.kerberos.service.name=: is not set"),
    ],
)
def test_option_that_cannot_be_obeyed_is_refused(key: str, value: str, complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        SinkOptions.from_options(SERVERS | {key: value})


def test_settings_without_an_effect_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    at_least_once(
        SERVERS
        | {"topic": "t", "kafka.linger.ms": "5", "kafka.batch.size": "1000", "kafka.isolation.level": "read_committed"}
        | {"kafka.SASL.jaas.config": "secret"}
    )
    assert [record.getMessage() for record in caplog.records] == [
        "kafka.isolation.level has no effect on what the sink writes: it is a setting of consumers.",
        "kafka.linger.ms has no effect on what the sink writes: each task sends a batch when it is full, and its last "
        "ones at its end.",
        "kafka.sasl.jaas.config has no effect on what the sink writes: connections have no SASL, as "
        "kafka.security.protocol is PLAINTEXT by default; set it to SASL_PLAINTEXT or SASL_SSL.",
    ]
    with pytest.raises(JobError, match="kafka.linger.m is no setting .* the nearest name is kafka.linger.ms"):
        exactly_once("id", SERVERS | {"kafka.linger.m": "5"})
