"""GetTelemetrySubscriptions: what subscriptions request of a client; served where a listener shows metrics."""

from __future__ import annotations

from pathlib import Path

from gregor.broker.context import ClientSoftware
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID, is_reserved
from gregor.protocol.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.broker.harness import Harness

CLIENT_METRICS, SET, DELETE = 16, 0, 1


def alter(harness: Harness, name: str, **settings: str | None) -> None:
    """Set, or with None delete, settings of a subscription; names have underscores here."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    answer = harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def subscriptions(
    harness: Harness, client_instance_id: bytes = ZERO_UUID, client_id: str | None = "tests"
) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client_instance_id)
    answer: GetTelemetrySubscriptionsResponse = harness.ask(request, 0, client_id)
    return answer


def served(harness: Harness) -> set[int]:
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    return {one.api_key for one in harness.ask(request, 4).api_keys}


def test_it_is_advertised_only_with_a_listener(shown: Harness, tmp_path: Path) -> None:
    keys = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert keys <= served(shown)
    without = Harness(tmp_path).start()
    assert not keys & (served(without) | without.broker.handlers.keys())
    without.stop()


def test_without_a_subscription_no_metrics_are_requested(shown: Harness) -> None:
    answer = subscriptions(shown)
    assert answer.error_code == 0
    assert not is_reserved(answer.client_instance_id)
    assert answer.requested_metrics == []
    assert answer.push_interval_ms == 300_000
    assert answer.telemetry_max_bytes == 4000
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert subscriptions(shown).client_instance_id != answer.client_instance_id


def test_a_long_client_id_is_cut(shown: Harness) -> None:
    client_instance_id = subscriptions(shown, client_id="c" * 32_000).client_instance_id
    telemetry = shown.broker.telemetry
    assert telemetry is not None
    (found,) = [one for one in telemetry.instances if one.id == client_instance_id]
    assert found.attributes["client_id"] == "c" * 255


def test_changes_are_in_effect_when_they_are_answered(shown: Harness) -> None:
    first = subscriptions(shown)
    alter(shown, "a", metrics="org.apache.kafka.producer.,org.apache.kafka.consumer.", interval_ms="1000")
    alter(shown, "b", metrics="org.apache.kafka.producer.", match="client_id=other")
    again = subscriptions(shown, first.client_instance_id)
    assert again.client_instance_id == first.client_instance_id
    assert again.requested_metrics == ["org.apache.kafka.consumer.", "org.apache.kafka.producer."]
    assert again.push_interval_ms == 1000
    assert again.subscription_id != first.subscription_id
    early = subscriptions(shown, first.client_instance_id)
    assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    alter(shown, "a", metrics=None, interval_ms=None)
    assert subscriptions(shown, first.client_instance_id).subscription_id == first.subscription_id
    assert subscriptions(shown, client_id="other").requested_metrics == ["org.apache.kafka.producer."]
    alter(shown, "b", metrics=None, match=None)


def test_software_is_that_of_the_connections_api_versions_request(shown: Harness) -> None:
    assert shown.connection.software == ClientSoftware("n", "1")  # of `served`
    alter(shown, "s", metrics="*", match="client_software_name=librdkafka")
    assert subscriptions(shown).requested_metrics == []
    shown.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.0"), 3)
    assert subscriptions(shown).requested_metrics == ["*"]
    alter(shown, "s", metrics=None, match=None)


def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    before = Harness(tmp_path, gregor_metrics_listener="0").start()
    alter(before, "a", metrics="*", match="client_source_address=127.0.0.1")
    before.stop()
    after = Harness(tmp_path, gregor_metrics_listener="0").start()
    assert subscriptions(after).requested_metrics == ["*"]
    after.stop()
