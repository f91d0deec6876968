"""IncrementalAlterConfigs, both versions: four operations, refused requests, and the immediate effect of changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from gregor.replication.store.nodes import config_path
from tests.broker.harness import Harness, Wire, batch, one_partition, produce_request

VERSIONS = (0, 1)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    make = IncrementalAlterConfigsRequest.AlterableConfig
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[make(name=key, config_operation=operation, value=value) for key, operation, value in changes],
    )


def alter(harness: Harness, version: int, *resources: Any, validate_only: bool = False) -> list[ErrorCode]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response: IncrementalAlterConfigsResponse = harness.ask(request, version)
    told = [(one.resource_type, one.resource_name) for one in response.responses]
    assert told == [(one.resource_type, one.resource_name) for one in resources]
    for one in response.responses:
        assert (one.error_message is None) == (one.error_code == 0)
    return [ErrorCode(one.error_code) for one in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_four_operations(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, retention_ms="1")

    def after(*changes: Change) -> dict[str, str]:
        assert alter(harness, version, resource(TOPIC, topic, *changes)) == [ErrorCode.NONE]
        return dict(harness.broker.topic_configs.overrides(topic))

    assert after(("retention.ms", SET, "5"), ("flush.ms", SET, "7")) == {"retention.ms": "5", "flush.ms": "7"}
    assert after(("flush.ms", DELETE, None)) == {"retention.ms": "5"}
    assert after(("flush.ms", DELETE, None)) == {"retention.ms": "5"}
    assert after(("cleanup.policy", APPEND, "compact"))["cleanup.policy"] == "delete,compact"
    assert after(("cleanup.policy", APPEND, "compact"))["cleanup.policy"] == "delete,compact"
    assert after(("cleanup.policy", SUBTRACT, "delete"))["cleanup.policy"] == "compact"
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    assert (log.config.retention_ms, log.config.cleanup_policy) == (5, frozenset({"compact"}))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (("", SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_refused_changes_nothing(
    harness: Harness, topic: str, version: int, change: Change, error: ErrorCode
) -> None:
    harness.create_topic(topic, retention_ms="1")
    assert alter(harness, version, resource(TOPIC, topic, ("flush.ms", SET, "9"), change)) == [error]
    assert harness.broker.topic_configs.overrides(topic) == {"retention.ms": "1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_resources_that_cannot_be_altered(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    change = ("retention.ms", SET, "1")
    assert alter(
        harness,
        version,
        resource(TOPIC, "absent", change),
        resource(TOPIC, "a/b", change),
        resource(TOPIC, "", change),
        resource(BROKER, "9", ("message.max.bytes", SET, "1")),
        resource(BROKER, "zero", ("message.max.bytes", SET, "1")),
        resource(BROKER, "0", ("broker.id", SET, "1")),
        resource(BROKER, "", ("message.max.bytes", SET, "many")),
        resource(BROKER, "", ("no.such.key", SET, "1")),
        resource(1, "x", change),
        resource(8, "0", ("no.such.logger", SET, "DEBUG")),
        resource(8, "7", ("root", SET, "DEBUG")),
    ) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *[ErrorCode.INVALID_REQUEST] * 7,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    ]
    assert alter(harness, version, resource(BROKER, "0", ("message.max.bytes", 9, "1"))) == [ErrorCode.INVALID_REQUEST]
    assert alter(harness, version, resource(BROKER, "0", ("message.max.bytes", APPEND, "1"))) == [
        ErrorCode.INVALID_CONFIG
    ]
    twice = resource(TOPIC, topic, change)
    assert alter(harness, version, twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
    doubled = resource(TOPIC, topic, change, ("retention.ms", SET, "2"))
    assert alter(harness, version, doubled) == [ErrorCode.INVALID_REQUEST]
    assert harness.broker.topic_configs.overrides(topic) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_validation_alone_changes_nothing(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    good, bad = resource(TOPIC, topic, ("flush.ms", SET, "1")), resource(TOPIC, topic, ("flush.ms", SET, "x"))
    assert alter(harness, version, good, validate_only=True) == [ErrorCode.NONE]
    assert alter(harness, version, bad, validate_only=True) == [ErrorCode.INVALID_CONFIG]
    assert harness.broker.topic_configs.overrides(topic) == {}


@pytest.fixture
def brokers_as_before(harness: Harness) -> Iterator[None]:
    yield
    for name in ("", "0"):
        alter(harness, 1, resource(BROKER, name, ("message.max.bytes", DELETE, None)))


def test_the_brokers_settings_reach_topics_without_own_ones(
    harness: Harness, topic: str, brokers_as_before: None
) -> None:
    harness.create_topic(topic)
    harness.create_topic(f"{topic}-own", max_message_bytes="30000")
    wire = Wire(harness)

    def error(name: str) -> int:
        request = produce_request(name, batch(bytes(20_000)))
        return one_partition(wire.ask(request, 12)).error_code

    assert error(topic) == 0
    assert alter(harness, 1, resource(BROKER, "", ("message.max.bytes", SET, "10000"))) == [ErrorCode.NONE]
    assert [error(topic), error(f"{topic}-own")] == [ErrorCode.MESSAGE_TOO_LARGE, 0]
    assert alter(harness, 1, resource(BROKER, "", ("message.max.bytes", SET, "25000"))) == [ErrorCode.NONE]
    assert [error(topic), error(topic), error(f"{topic}-own")] == [0, 0, 0]
    assert alter(harness, 1, resource(BROKER, "0", ("message.max.bytes", SET, "1000"))) == [ErrorCode.NONE]
    assert [error(topic), error(f"{topic}-own")] == [ErrorCode.MESSAGE_TOO_LARGE, 0]
    assert alter(harness, 1, resource(BROKER, "0", ("message.max.bytes", DELETE, None))) == [ErrorCode.NONE]
    assert error(topic) == 0
    wire.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_levels_of_loggers_change_at_once(harness: Harness, version: int) -> None:
    logger = logging.getLogger("gregor")
    try:
        assert alter(harness, version, resource(LOGGER, "0", ("gregor", SET, "FATAL"))) == [ErrorCode.NONE]
        assert logger.level == logging.CRITICAL
        change = resource(LOGGER, "0", ("gregor", SET, "DEBUG"))
        assert alter(harness, version, change, validate_only=True) == [ErrorCode.NONE]
        assert logger.level == logging.CRITICAL
        assert alter(harness, version, resource(LOGGER, "0", ("gregor", DELETE, None))) == [ErrorCode.NONE]
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_and_client_metrics(harness: Harness, version: int) -> None:
    settings = harness.broker.admin.settings

    def after(kind: int, *changes: Change) -> dict[str, str]:
        assert alter(harness, version, resource(kind, "x", *changes)) == [ErrorCode.NONE]
        return harness.run(settings.texts({GROUP: "groups", METRICS: "client-metrics"}[kind], "x"))

    assert after(GROUP, ("share.auto.offset.reset", SET, "earliest")) == {"share.auto.offset.reset": "earliest"}
    assert after(METRICS, ("metrics", SET, "a,b"), ("interval.ms", SET, "500")) == {
        "metrics": "a,b",
        "interval.ms": "500",
    }
    assert after(METRICS, ("metrics", DELETE, None)) == {"interval.ms": "500"}
    assert after(METRICS, ("interval.ms", DELETE, None)) == {}
    assert after(GROUP, ("share.auto.offset.reset", DELETE, None)) == {}
    assert alter(harness, version, resource(METRICS, "x", ("metrics", APPEND, "c"))) == [ErrorCode.INVALID_CONFIG]
    assert alter(harness, version, resource(GROUP, "", ("share.auto.offset.reset", SET, "latest"))) == [
        ErrorCode.INVALID_REQUEST
    ]


def test_a_node_that_cannot_be_decoded_is_an_error_of_its_resource(harness: Harness, topic: str) -> None:
    """Other resources of the request are altered."""
    harness.create_topic(topic)
    harness.create_topic("broken")
    store, path = harness.node.store, config_path("topics", "broken")
    harness.run(store.set(path, b"{"))
    change = ("retention.ms", SET, "5")
    request = IncrementalAlterConfigsRequest(resources=[resource(TOPIC, name, change) for name in ("broken", topic)])
    broken, good = harness.ask(request, 1).responses
    assert (broken.error_code, good.error_code) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)
    assert "topics/broken cannot be read" in broken.error_message
    assert "correct the node or delete it" in broken.error_message
    assert harness.broker.topic_configs.overrides(topic) == {"retention.ms": "5"}
