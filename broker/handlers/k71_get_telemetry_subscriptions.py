"""GetTelemetrySubscriptions (key 71), versions 0 to 0 (KIP-714): which metrics the client is to push, and how often.

- Served where the broker shows them: while it has a listener for metrics (gregor.metrics.listener). Apache Kafka serves
  it while a metrics reporter receives telemetry.
- A request before the end of the interval: THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed.
- Unlike Apache Kafka, counters are requested as cumulative values, not as differences.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.part_of import client_telemetry
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.ids import uuid_to_text
from gregor.protocol.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.broker.telemetry.subscriptions import Attributes
    from gregor.broker.telemetry.telemetry import Telemetry
    from gregor.protocol.ids import Uuid

MAX_CLIENT_ID = 255
"""Characters of a client id that patterns match and that are shown: it may have 32 KB, and those of thousands of client
instances are remembered."""


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0)
@on_part(client_telemetry)
def get_telemetry_subscriptions(
    telemetry: Telemetry, request: GetTelemetrySubscriptionsRequest, call: Call
) -> GetTelemetrySubscriptionsResponse:
    return telemetry.subscriptions_of(request, partial(client_attributes, call))


def client_attributes(call: Call, client_instance_id: Uuid) -> Attributes:
    """Return the attributes of the client that patterns of subscriptions may match."""
    connection = call.connection
    software, version = connection.software
    attributes = {
        "client_instance_id": uuid_to_text(client_instance_id),
        "client_id": call.client_id and call.client_id[:MAX_CLIENT_ID],
        "client_software_name": software,
        "client_software_version": version,
        "client_source_address": connection.host,
        "client_source_port": connection.peer.rpartition(":")[2],
    }
    return {name: value for name, value in attributes.items() if value is not None}
