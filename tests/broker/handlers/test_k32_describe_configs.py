"""DescribeConfigs, every version: the settings of topics and brokers, and their sources (ConfigHelper)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gregor.config.definitions import LISTED
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest
from gregor.replication.store.nodes import config_path, encode_config
from tests.broker.harness import Harness

VERSIONS = range(1, 5)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
FROM_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)
LONG, LIST = 5, 7


def describe(
    harness: Harness, version: int, kind: int, name: str, keys: list[str] | None = None, **fields: Any
) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    response: DescribeConfigsResponse = harness.ask(DescribeConfigsRequest(resources=[resource], **fields), version)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entries(result: DescribeConfigsResponse.DescribeConfigsResult) -> dict[str, Any]:
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def alter_broker(harness: Harness, name: str, **values: str | None) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key.replace("_", "."), config_operation=1 if value is None else 0, value=value
            )
            for key, value in values.items()
        ],
    )
    assert harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0


@pytest.fixture(scope="module")
def known(harness: Harness) -> Iterator[str]:
    harness.create_topic("known", retention_ms="777", cleanup_policy="delete,compact")
    alter_broker(harness, "", log_segment_bytes="5000000")
    alter_broker(harness, "0", message_max_bytes="2000000")
    yield "known"
    alter_broker(harness, "", log_segment_bytes=None)
    alter_broker(harness, "0", message_max_bytes=None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topics_settings_and_their_sources(harness: Harness, known: str, version: int) -> None:
    found = entries(describe(harness, version, TOPIC, known))
    assert set(found) == {key for key, definition in TOPIC_KEYS.items() if definition.visibility == LISTED}
    assert {name: (found[name].value, found[name].config_source) for name in (
        "retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "flush.ms"
    )} == {
        "retention.ms": ("777", FROM_TOPIC),
        "cleanup.policy": ("delete,compact", FROM_TOPIC),
        "segment.bytes": ("5000000", DYNAMIC_DEFAULT),
        "max.message.bytes": ("2000000", DYNAMIC_BROKER),
        "flush.ms": ("9223372036854775807", DEFAULT),
    }  # fmt: skip
    assert not any(config.read_only or config.is_sensitive or config.synonyms for config in found.values())
    assert found["retention.ms"].config_type == (LONG if version >= 3 else 0)
    assert found["cleanup.policy"].config_type == (LIST if version >= 3 else 0)
    assert all(config.documentation is None for config in found.values()) or version < 3


@pytest.mark.parametrize("version", VERSIONS)
def test_synonyms_are_told_to_those_who_ask(harness: Harness, known: str, version: int) -> None:
    found = entries(describe(harness, version, TOPIC, known, include_synonyms=True))

    def synonyms(name: str) -> list[tuple[str, str | None, int]]:
        return [(one.name, one.value, one.source) for one in found[name].synonyms]

    assert synonyms("retention.ms") == [("retention.ms", "777", FROM_TOPIC)]
    assert synonyms("segment.bytes") == [
        ("log.segment.bytes", "5000000", DYNAMIC_DEFAULT),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert synonyms("max.message.bytes") == [
        ("message.max.bytes", "2000000", DYNAMIC_BROKER),
        ("message.max.bytes", "1048588", DEFAULT),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_keys_asked_for(harness: Harness, known: str, version: int) -> None:
    assert set(entries(describe(harness, version, TOPIC, known, ["retention.ms", "no.such.key"]))) == {"retention.ms"}
    assert len(entries(describe(harness, version, TOPIC, known, []))) == len(
        entries(describe(harness, version, TOPIC, known, None))
    )


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_is_told_to_those_who_ask(harness: Harness, known: str, version: int) -> None:
    for kind, name in ((TOPIC, known), (BROKER, "0")):
        found = entries(describe(harness, version, kind, name, include_documentation=True))
        assert all(config.documentation for config in found.values())
        found = entries(describe(harness, version, kind, name))
        assert not any(config.documentation for config in found.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_this_broker(harness: Harness, known: str, version: int) -> None:
    found = entries(describe(harness, version, BROKER, "0"))
    table = {**BROKER_KEYS, **keys_without_effect()}
    assert set(found) == {key for key, row in table.items() if row.visibility == LISTED}
    assert (found["message.max.bytes"].value, found["message.max.bytes"].config_source) == ("2000000", DYNAMIC_BROKER)
    assert not found["message.max.bytes"].read_only
    assert (found["log.dirs"].value, found["log.dirs"].config_source) == (str(harness.folder), STATIC)
    assert found["log.dirs"].read_only
    passwords = [config for config in found.values() if config.is_sensitive]
    assert {config.name for config in passwords} == {
        key for key, row in table.items() if row.visibility == LISTED and row.sensitive
    }
    assert all(config.value is None for config in passwords)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_broker_name_stands_for_what_all_brokers_share(harness: Harness, known: str, version: int) -> None:
    found = entries(describe(harness, version, BROKER, ""))
    assert {name: (config.value, config.config_source) for name, config in found.items()} == {
        "log.segment.bytes": ("5000000", DYNAMIC_DEFAULT)
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST),
        (BROKER, " 0", ErrorCode.INVALID_REQUEST),
        (BROKER, "0" * 5000, ErrorCode.INVALID_REQUEST),
        (1, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_errors(harness: Harness, version: int, kind: int, name: str, error: ErrorCode) -> None:
    result = describe(harness, version, kind, name)
    assert ErrorCode(result.error_code) is error
    assert result.error_message
    assert result.configs == []


def test_a_topics_settings_are_those_of_its_node_noticed_here_or_not(harness: Harness) -> None:
    # As for a topic without a replica on this broker: the broker gets no notice of its settings.
    harness.create_topic("elsewhere", retention_ms="777")
    store, path = harness.node.store, config_path("topics", "elsewhere")
    harness.run(store.set(path, encode_config({"retention.ms": "778"})))
    assert entries(describe(harness, 4, TOPIC, "elsewhere"))["retention.ms"].value == "778"
    harness.run(store.set(path, b"{"))
    result = describe(harness, 4, TOPIC, "elsewhere")
    assert (result.error_code, result.configs) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert "topics/elsewhere cannot be read" in result.error_message


def test_an_illegal_value_of_a_group_is_shown_as_it_is_stored(harness: Harness) -> None:
    key = "consumer.session.timeout.ms"
    node = encode_config({key: "abc"})
    harness.run(harness.node.store.create(config_path("groups", "odd"), node, make_parents=True))
    result = describe(harness, 4, GROUP, "odd")
    assert result.error_code == 0
    assert entries(result)[key].value == "abc"


@pytest.mark.parametrize("version", range(5))
def test_loggers_groups_and_client_metrics(harness: Harness, version: int) -> None:
    found = entries(describe(harness, version, LOGGER, "0"))
    assert {"root", "gregor"} <= set(found)
    assert found["root"].value in {"DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"}
    assert not found["root"].read_only
    found = entries(describe(harness, version, GROUP, "some-group"))
    assert (found["consumer.session.timeout.ms"].value, len(found)) == ("45000", 17)
    found = entries(describe(harness, version, METRICS, "some", ["interval.ms"]))
    assert {name: entry.value for name, entry in found.items()} == {"interval.ms": "300000"}


def test_one_unknown_type_is_an_error_of_all(harness: Harness) -> None:
    make = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [make(resource_type=kind, resource_name="0", configuration_keys=None) for kind in (BROKER, 99)]
    answer: DescribeConfigsResponse = harness.ask(DescribeConfigsRequest(resources=wanted), 4)
    assert [one.error_code for one in answer.results] == [ErrorCode.INVALID_REQUEST] * 2


def test_version_0_says_what_is_a_default(harness: Harness, known: str) -> None:
    found = entries(describe(harness, 0, TOPIC, known))
    assert {name for name, config in found.items() if not config.is_default} == {
        *("retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes"),
    }
    assert (found["retention.ms"].value, found["flush.ms"].value) == ("777", "9223372036854775807")
    assert entries(describe(harness, 0, BROKER, "0"))["message.max.bytes"].value == "2000000"
