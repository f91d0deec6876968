"""UpdateMetadata (key 6), versions 0 to 8: the controller sends the live brokers and the leaders.

- 1 several endpoints of a broker; 2 racks; 3 names of listeners, in place of the protocol's name;
  4 offline replicas; 5 the broker's epoch, partitions by topic; 6 flexible; 7 topic ids; 8 KRaft controllers during a
  migration.
- Requests with an old controller epoch or an old broker epoch are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.part_of import controller_request_handler
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import UpdateMetadataRequest, UpdateMetadataResponse
from gregor.replication.controller.requests import SECURITY_PROTOCOL_IDS

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.partition.controller_request_handler import ControllerRequestHandler

ENDPOINTS_FROM = 1
RACKS_FROM = 2
LISTENERS_FROM = 3
BY_TOPIC_FROM = 5

_Topic = UpdateMetadataRequest.UpdateMetadataTopicState
_Endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint
_PROTOCOL_NAMES = {id_: name for name, id_ in SECURITY_PROTOCOL_IDS.items()}


@handles(ApiKey.UPDATE_METADATA, 0, 8, changes=True)
@on_part(controller_request_handler)
async def update_metadata(
    requests: ControllerRequestHandler, request: UpdateMetadataRequest, call: Call
) -> UpdateMetadataResponse:
    if call.version < BY_TOPIC_FROM:
        topics: dict[str, _Topic] = {}
        for state in request.ungrouped_partition_states:
            topics.setdefault(state.topic_name, _Topic(topic_name=state.topic_name)).partition_states.append(state)
        request.topic_states = list(topics.values())
    if call.version < LISTENERS_FROM:
        for one in request.live_brokers:
            if call.version < ENDPOINTS_FROM:
                one.endpoints = [_Endpoint(host=one.v0_host, port=one.v0_port)]
            if call.version < RACKS_FROM:
                one.rack = None
            for endpoint in one.endpoints:
                endpoint.listener = _PROTOCOL_NAMES.get(endpoint.security_protocol, "PLAINTEXT")
    response = await requests.handle(request, call.connection.number)
    assert isinstance(response, UpdateMetadataResponse)
    return response
