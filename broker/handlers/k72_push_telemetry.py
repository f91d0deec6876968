"""PushTelemetry (key 72), versions 0 to 0 (KIP-714): metrics of a client, which /metrics shows.

- Served with GetTelemetrySubscriptions (71).
- Errors as in Apache Kafka: INVALID_REQUEST (reserved client instance id, or a push after the last one),
  THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD
  (the metrics cannot be decompressed or decoded, or are too many).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.handlers.k71_get_telemetry_subscriptions import client_attributes
from gregor.broker.part_of import client_telemetry
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.telemetry.telemetry import Telemetry


@handles(ApiKey.PUSH_TELEMETRY, 0, 0)
@on_part(client_telemetry)
async def push_telemetry(telemetry: Telemetry, request: PushTelemetryRequest, call: Call) -> PushTelemetryResponse:
    return await telemetry.push(request, partial(client_attributes, call))
