"""ApiVersions (key 18), versions 0 to 5: the served APIs, derived from the registered handlers.

A request of an unknown version gets the version-0 form with UNSUPPORTED_VERSION and the versions of this API (KIP-511);
the connection does that, as there is no request to decode.

- 1 throttle time; 3 flexible, client software name and version, features (KIP-584); 4 features may have minimum
  version 0; 5 (Kafka 4.4) a client that expects another cluster or broker here, as its connection was misrouted, gets
  REBOOTSTRAP_REQUIRED (KIP-1242).
- ConsumerGroupHeartbeat and ConsumerGroupDescribe are left out while this broker does not serve the consumer group
  protocol (gregor.broker.groups.protocols): clients then report that the cluster does not support it.
- Features whose lowest supported level is 0 are left out before version 4: older clients cannot decode them
  (KAFKA-17492). Finalised are the levels above 0, with the epoch by which clients recognise the newest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gregor.broker.context import ClientSoftware
from gregor.broker.groups.protocols import CONSUMER_APIS, serves_consumer_groups
from gregor.broker.net.responses import EncodedResponse
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from gregor.replication.store.features import SUPPORTED

if TYPE_CHECKING:
    from gregor.broker.context import ApiContext, Call, ServedApi
    from gregor.replication.store.features import Finalized

LEVEL_0_FROM = 4
MAX_SOFTWARE = 255
"""Characters of the name and of the version of client software that are kept with a connection."""
# KIP-511: legal names of client software.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS, 0, 5)
def api_versions(broker: ApiContext, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse | EncodedResponse:
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        call.connection.identify(ClientSoftware(name[:MAX_SOFTWARE], version[:MAX_SOFTWARE]))
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        broker.cluster_id,
        broker.broker_id,
    ):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    table, finalized = broker.handlers, broker.features.finalized
    known = _answers.get(call.version)
    if known is None or known[0] is not table or known[1] != len(table) or known[2] is not finalized:
        left_out = frozenset() if serves_consumer_groups(broker) else CONSUMER_APIS
        answer = EncodedResponse([_served(table, left_out, finalized, call.version).encode(call.version)])
        known = _answers[call.version] = table, len(table), finalized, answer
    return known[3]


def _served(
    table: Mapping[int, ServedApi], left_out: Collection[int], finalized: Finalized, version: int
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=entry.min_version, max_version=entry.max_version)
            for key, entry in sorted(table.items())
            if key not in left_out
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in sorted(SUPPORTED.items())
            if lowest > 0 or version >= LEVEL_0_FROM
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.levels.items())
        ],
    )


# By version: the table of handlers, their number, the finalised features, and the response made from them. Each client
# sends one request, all of them at once after the start of a broker, and the response is the same for all.
_answers: dict[int, tuple[Mapping[int, ServedApi], int, Finalized, EncodedResponse]] = {}
