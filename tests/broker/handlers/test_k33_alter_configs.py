"""AlterConfigs, every version: keys that are not named get their default again; the errors of Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from tests.broker.harness import Harness

VERSIONS = range(3)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsRequest.AlterConfigsResource:
    make = AlterConfigsRequest.AlterableConfig
    return AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[make(name=key, value=value) for key, value in configs]
    )


def alter(harness: Harness, version: int, *resources: Any, validate_only: bool = False) -> list[ErrorCode]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response: AlterConfigsResponse = harness.ask(request, version)
    assert [(one.resource_type, one.resource_name) for one in response.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    for one in response.responses:
        assert (one.error_message is None) == (one.error_code == 0)
    return [ErrorCode(one.error_code) for one in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_named_goes(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic, retention_ms="1", flush_ms="2")
    log = harness.broker.logs.get(topic, 0)
    assert log is not None
    wanted = resource(TOPIC, topic, ("flush.ms", "3"))
    assert alter(harness, version, wanted, validate_only=True) == [ErrorCode.NONE]
    assert (log.config.retention_ms, log.config.flush_ms) == (1, 2)
    assert alter(harness, version, wanted) == [ErrorCode.NONE]
    assert (log.config.retention_ms, log.config.flush_ms) == (604_800_000, 3)
    assert alter(harness, version, resource(TOPIC, topic)) == [ErrorCode.NONE]
    assert harness.broker.topic_configs.overrides(topic) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_groups_and_client_metrics(harness: Harness, version: int) -> None:
    config, settings = harness.broker.config, harness.broker.admin.settings
    given = [("message.max.bytes", "9000000"), ("log.segment.bytes", "5000000")]
    assert (
        alter(harness, version, resource(BROKER, "", *given), resource(BROKER, "0", *given[:1])) == [ErrorCode.NONE] * 2
    )
    assert (config["log.segment.bytes"], config.source("message.max.bytes")) == (5_000_000, "DYNAMIC_BROKER_CONFIG")
    assert alter(harness, version, resource(BROKER, ""), resource(BROKER, "0")) == [ErrorCode.NONE] * 2
    assert (config.dynamic_texts, config.dynamic_default_texts) == ({}, {})
    assert alter(harness, version, resource(GROUP, "g", ("consumer.session.timeout.ms", "50000"))) == [ErrorCode.NONE]
    assert alter(harness, version, resource(METRICS, "m", ("interval.ms", "1000"))) == [ErrorCode.NONE]
    assert harness.run(settings.names("groups")) == ["g"]
    assert alter(harness, version, resource(GROUP, "g"), resource(METRICS, "m")) == [ErrorCode.NONE] * 2
    assert harness.run(settings.names("groups")) == harness.run(settings.names("client-metrics")) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "name", "configs", "error"),
    [
        (TOPIC, "absent", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "absent", [("no.such.key", "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "a/b", [], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", [], ErrorCode.INVALID_REQUEST),
        (TOPIC, "absent", [("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "absent", [("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "7", [], ErrorCode.INVALID_REQUEST),
        (BROKER, "x", [], ErrorCode.INVALID_REQUEST),
        (BROKER, "0", [("broker.id", "1")], ErrorCode.INVALID_REQUEST),
        (LOGGER, "0", [("root", "INFO")], ErrorCode.INVALID_REQUEST),
        (GROUP, "", [], ErrorCode.INVALID_REQUEST),
        (METRICS, "", [], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("nope", "1")], ErrorCode.INVALID_REQUEST),
        (1, "x", [], ErrorCode.INVALID_REQUEST),
        (99, "x", [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_errors(
    harness: Harness, version: int, kind: int, name: str, configs: list[tuple[str, str | None]], error: ErrorCode
) -> None:
    assert alter(harness, version, resource(kind, name, *configs)) == [error]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_resource_named_twice(harness: Harness, topic: str, version: int) -> None:
    harness.create_topic(topic)
    twice = resource(TOPIC, topic, ("flush.ms", "1"))
    assert alter(harness, version, twice, resource(BROKER, ""), twice) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert harness.broker.topic_configs.overrides(topic) == {}
