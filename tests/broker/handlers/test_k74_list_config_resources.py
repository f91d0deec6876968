"""ListConfigResources, both versions (KIP-1142)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from gregor.replication.admin.configs import replacement
from tests.broker.harness import Harness

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def settings(harness: Harness, topic: str) -> Iterator[None]:
    harness.create_topic(topic)
    alter = harness.broker.admin.settings.alter
    harness.run(alter("groups", "a group", replacement({"share.auto.offset.reset": "earliest"})))
    harness.run(alter("client-metrics", "m", replacement({"interval.ms": "1000"})))
    yield
    harness.run(alter("groups", "a group", replacement({})))
    harness.run(alter("client-metrics", "m", replacement({})))


def listed(harness: Harness, version: int, *kinds: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds)) if version else ListConfigResourcesRequest()
    response: ListConfigResourcesResponse = harness.ask(request, version)
    assert response.error_code == 0
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_version_0_lists_subscriptions(harness: Harness, settings: None) -> None:
    assert listed(harness, 0) == [(METRICS, "m")]


def test_by_type(harness: Harness, topic: str, settings: None) -> None:
    assert (TOPIC, topic) in listed(harness, 1, TOPIC)
    assert listed(harness, 1, GROUP, BROKER, GROUP) == [(GROUP, "a group"), (BROKER, "0")]
    everything = listed(harness, 1)
    assert {(TOPIC, topic), (BROKER, "0"), (LOGGER, "0"), (METRICS, "m"), (GROUP, "a group")} <= set(everything)


@pytest.mark.parametrize("kinds", [[99], [0], [1], [TOPIC, 99]])
def test_a_type_that_does_not_exist(harness: Harness, kinds: list[int]) -> None:
    response = harness.ask(ListConfigResourcesRequest(resource_types=kinds), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
