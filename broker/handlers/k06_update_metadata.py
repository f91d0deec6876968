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
        request = request.replaced(topic_states=list(topics.values()))
    if call.version < LISTENERS_FROM:
        request = request.replaced(live_brokers=[_with_listeners(one, call.version) for one in request.live_brokers])
    response = await requests.handle(request, call.connection.number)
    assert isinstance(response, UpdateMetadataResponse)
    return response


def _with_listeners(
    broker: UpdateMetadataRequest.UpdateMetadataBroker, version: int
) -> UpdateMetadataRequest.UpdateMetadataBroker:
    """Return a broker of an old version as LISTENERS_FROM has it: a listener bears the name of its protocol."""
    endpoints = broker.endpoints
    if version < ENDPOINTS_FROM:
        endpoints = [_Endpoint(host=broker.v0_host, port=broker.v0_port)]
    named = [one.replaced(listener=_PROTOCOL_NAMES.get(one.security_protocol, "PLAINTEXT")) for one in endpoints]
    return broker.replaced(endpoints=named, rack=None if version < RACKS_FROM else broker.rack)
