"""Client telemetry of one broker (KIP-714): answers the two requests and keeps what clients push for /metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.log import logger
from gregor.broker.telemetry.instances import MAX_SERIES_OF_INSTANCE, ClientInstances
from gregor.broker.telemetry.otlp import Decoder, MalformedTelemetry, Point
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import ZERO_UUID, is_reserved, random_uuid
from gregor.protocol.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from gregor.protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD, DecompressionError, decompress

if TYPE_CHECKING:
    from collections.abc import Callable

    from gregor.broker.jobs.background import Background
    from gregor.broker.telemetry.instances import ClientInstance
    from gregor.broker.telemetry.subscriptions import Attributes, Subscriptions
    from gregor.protocol.ids import Uuid
    from gregor.protocol.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
    from gregor.protocol.turns import Steps

ACCEPTED_CODECS = [ZSTD, LZ4, GZIP, SNAPPY]
MAX_RATIO = 8
"""A push decompresses to at most this many times telemetry.max.bytes."""
PUSHES_AT_ONCE = 4
"""Pushes that are decompressed and decoded at a time; the others wait."""


class Telemetry:
    """`instances` have the series to show."""

    def __init__(
        self, subscriptions: Subscriptions, max_bytes: int, background: Background, clock_ms: Callable[[], int]
    ) -> None:
        """`max_bytes`: telemetry.max.bytes."""
        self.subscriptions = subscriptions
        self.instances = ClientInstances(subscriptions)
        self._max_bytes = max_bytes
        self._background = background
        self._clock_ms = clock_ms
        self._decoding = asyncio.Semaphore(PUSHES_AT_ONCE)
        self.pushes = 0
        """Pushes that were decoded."""
        self.failed_pushes = 0
        self.dropped_series = 0
        """Series of pushes for which there was no room, or which no subscription requests."""

    def expire(self) -> None:
        """Remove the instances that have been silent for too long."""
        self.instances.expire(self._clock_ms())

    def subscriptions_of(
        self, request: GetTelemetrySubscriptionsRequest, attributes_of: Callable[[Uuid], Attributes]
    ) -> GetTelemetrySubscriptionsResponse:
        """Return what a client is to send. `attributes_of` returns its attributes for a client instance id."""
        now_ms = self._clock_ms()
        client_instance_id = request.client_instance_id
        while client_instance_id == ZERO_UUID or (
            request.client_instance_id == ZERO_UUID and client_instance_id in self.instances
        ):
            client_instance_id = random_uuid()
        instance = self.instances.instance(client_instance_id, attributes_of(client_instance_id), now_ms)
        try:
            self.instances.check_get(instance, now_ms)
        except KafkaError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=ACCEPTED_CODECS,
            push_interval_ms=instance.selection.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            # Cumulative: the next push repairs one that was lost, and /metrics shows counters as clients count them.
            delta_temporality=False,
            requested_metrics=list(instance.selection.metrics),
        )

    async def push(
        self, request: PushTelemetryRequest, attributes_of: Callable[[Uuid], Attributes]
    ) -> PushTelemetryResponse:
        """Keep the metrics of a push."""
        client_instance_id, codec = request.client_instance_id, request.compression_type
        if is_reserved(client_instance_id):
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
        now_ms = self._clock_ms()
        instance = self.instances.instance(client_instance_id, attributes_of(client_instance_id), now_ms)
        try:
            self.instances.check_push(
                instance,
                now_ms,
                subscription_id=request.subscription_id,
                terminating=request.terminating,
                codec=codec,
                size_bytes=len(request.metrics),
                max_bytes=self._max_bytes,
            )
        except KafkaError as error:
            return PushTelemetryResponse(error_code=error.code)
        if not request.metrics:
            return PushTelemetryResponse()
        data = bytes(request.metrics)
        try:
            async with self._decoding:
                points = await self._background.run_steps(self._decoded(codec, data))
        except (DecompressionError, MalformedTelemetry) as error:
            self.failed_pushes += 1
            logger.debug("metrics of the client instance %s cannot be decoded: %s", instance.attributes, error)
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        self._keep(instance, points)
        return PushTelemetryResponse()

    def _decoded(self, codec: int, data: bytes) -> Steps[list[Point]]:
        plain = yield partial(decompress, codec, data, MAX_RATIO * self._max_bytes)
        decoder = Decoder(plain, MAX_SERIES_OF_INSTANCE)
        points = yield from decoder.points()
        self.dropped_series += decoder.left_out
        return points

    def _keep(self, instance: ClientInstance, points: list[Point]) -> None:
        self.pushes += 1
        requested = [point for point in points if instance.selection.includes(point.name)]
        self.dropped_series += len(points) - len(requested) + self.instances.keep(instance, requested)
