"""PushTelemetry: each codec, Apache Kafka's errors, and the bound of what a push decompresses to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.broker.telemetry.telemetry import MAX_RATIO, Telemetry
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.messages import PushTelemetryRequest
from gregor.protocol.records.compression import CODEC_NAMES, GZIP, ZSTD, compress
from tests.broker.handlers.test_k71_get_telemetry_subscriptions import alter, subscriptions
from tests.broker.harness import Harness
from tests.broker.telemetry.pushes import counter, gauge, point, push

MAX_BYTES = 4000
METRICS = push(
    gauge("org.apache.kafka.producer.a", point(1.5)),
    counter("org.apache.kafka.producer.b.total", point(3)),
    gauge("not.requested", point(1)),
)


@pytest.fixture
def subscribed(shown: Harness) -> Iterator[Harness]:
    alter(shown, "a", metrics="org.apache.kafka.producer.")
    yield shown
    alter(shown, "a", metrics=None)


def telemetry(harness: Harness) -> Telemetry:
    found = harness.broker.telemetry
    assert found is not None
    return found


def push_error(harness: Harness, metrics: bytes, client_instance_id: bytes | None = None, **fields: int) -> ErrorCode:
    """Push metrics as a client that has just fetched its subscriptions; return the error."""
    if client_instance_id is None:
        answer = subscriptions(harness)
        client_instance_id = answer.client_instance_id
        fields.setdefault("subscription_id", answer.subscription_id)
    request = PushTelemetryRequest(client_instance_id=client_instance_id, metrics=metrics)
    for name, value in fields.items():
        setattr(request, name, value)
    return ErrorCode(harness.ask(request, 0).error_code)


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_requested_metrics_are_kept_by_each_codec(subscribed: Harness, codec: int) -> None:
    dropped = telemetry(subscribed).dropped_series
    assert push_error(subscribed, compress(codec, METRICS), compression_type=codec) == ErrorCode.NONE
    newest = list(telemetry(subscribed).instances)[-1]
    assert {name: value.value for (name, _), value in newest.series.items()} == {
        "org.apache.kafka.producer.a": 1.5,
        "org.apache.kafka.producer.b.total": 3,
    }
    assert telemetry(subscribed).dropped_series == dropped + 1


@pytest.mark.parametrize("reserved", [ZERO_UUID, (1).to_bytes(16)])
def test_reserved_ids_are_refused(subscribed: Harness, reserved: bytes) -> None:
    assert push_error(subscribed, METRICS, reserved) == ErrorCode.INVALID_REQUEST


def test_other_errors_are_those_of_apache_kafka(subscribed: Harness) -> None:
    assert push_error(subscribed, METRICS, subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push_error(subscribed, METRICS, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push_error(subscribed, bytes(MAX_BYTES + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
    answer = subscriptions(subscribed)
    own = {"client_instance_id": answer.client_instance_id, "subscription_id": answer.subscription_id}
    assert push_error(subscribed, METRICS, **own) == ErrorCode.NONE
    assert push_error(subscribed, METRICS, **own) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push_error(subscribed, b"", **own, terminating=True) == ErrorCode.NONE
    assert push_error(subscribed, b"", **own) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("data", "codec"),
    [
        (b"no protocol buffer", 0),
        (b"no gzip", GZIP),
        (compress(ZSTD, bytes(MAX_RATIO * MAX_BYTES + 1)), ZSTD),
        (compress(GZIP, bytes(MAX_RATIO * MAX_BYTES + 1)), GZIP),
    ],
    ids=["bytes", "gzip", "zstd bomb", "gzip bomb"],
)
def test_undecodable_metrics_are_invalid(subscribed: Harness, data: bytes, codec: int) -> None:
    before = telemetry(subscribed).failed_pushes
    assert len(data) <= MAX_BYTES
    assert push_error(subscribed, data, compression_type=codec) == ErrorCode.INVALID_RECORD
    assert telemetry(subscribed).failed_pushes == before + 1
