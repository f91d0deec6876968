"""Fetch (key 1), versions 0 to 18.

Records leave as pieces of segment files, never decoded, but for versions 0 to 3, whose consumers read older formats
(broker.fetch.down_conversion). A request whose partitions have less than `min_bytes` waits, without holding a thread,
until enough is committed or `max_wait_ms` is over (gregor.broker.fetch.delayed).

- 1 throttle time; 2 message sets of magic 1; 3 limit for the whole answer; 4 batches of magic 2, isolation level,
  aborted transactions; 5 log start offset; 7 sessions (KIP-227); 9 current leader epoch; 11 rack; 12 flexible, last
  fetched epoch and diverging epoch (KIP-595); 13 topic ids; 15 replica state; 16 the current leader; 17 replica
  directory ids; 18 high watermark of followers.
- Isolation read_committed reads to the last stable offset, below which every transaction is decided, and the response
  names the aborted ones, whose records the client drops. Followers read to the end of the log.
- Fetches of followers: gregor.broker.fetch.follower_sessions.
- With an authorizer, a consumer needs READ on each topic, a follower CLUSTER_ACTION on the cluster.
- From 11 on a follower answers consumers, too, as far as it knows what is committed; a leader sends those that name
  their rack to a replica in it, if `replica.selector.class` is Kafka's RackAwareReplicaSelector (KIP-392).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gregor.broker.authorization.model import CLUSTER_NAME, Operation, ResourceType
from gregor.broker.fetch.consumer import FetchRead
from gregor.broker.fetch.delayed import DelayedFetch
from gregor.broker.fetch.follower_sessions import SESSIONS_FROM, replica_of
from gregor.broker.fetch.in_turns import fetch_in_turns
from gregor.broker.fetch.reads import TOPIC_IDS_FROM
from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import FetchRequest, FetchResponse
from gregor.replication.partition.offset_lookup import CONSUMER

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import Call
    from gregor.broker.fetch.context import FetchPathContext

BATCHES_FROM = 4
MANY_PARTITIONS = 500
"""More are read in turns; each costs some 4 us."""


@handles(ApiKey.FETCH, 0, 18)
def fetch(
    broker: FetchPathContext, request: FetchRequest, call: Call
) -> FetchResponse | Deferred[FetchResponse] | Awaitable[FetchResponse]:
    replica_id = replica_of(request, call.version)
    if broker.authorizer is not None and replica_id >= 0 and not _may_replicate(broker.authorizer, call):
        return _refused_follower(request)
    if call.version < BATCHES_FROM:
        from gregor.broker.fetch.down_conversion import fetch_converted

        return fetch_converted(broker, request, call)
    if call.version >= SESSIONS_FROM and replica_id >= 0:
        return broker.follower_sessions.fetch(broker, request, call)
    uses_ids = call.version >= TOPIC_IDS_FROM
    now_ms = broker.now_ms()
    try:
        context = broker.fetch_sessions.context(request, uses_ids, now_ms)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if not context.incremental and replica_id == CONSUMER:
        broker.fetch_sessions.note_client(call.client_id, call.connection, context, now_ms)
    read = FetchRead(broker, request, call, context)
    count = len(context.partitions)
    if count > MANY_PARTITIONS:
        return fetch_in_turns(broker.loop, broker.gate, read, count, max(0, request.max_wait_ms) / 1000)
    read.collect()
    if not read.missing and (read.satisfied or request.max_wait_ms <= 0):
        return read.response(now_ms)
    return DelayedFetch(broker.loop, broker.delayed_reads, read, max(0, request.max_wait_ms) / 1000)


def _may_replicate(authorizer: Authorizer, call: Call) -> bool:
    return authorizer.allows(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def _refused_follower(request: FetchRequest) -> FetchResponse:
    """Refuse each partition of a full request; one in a session is repeated as a full one by the follower."""
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=one.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=-1,
                        records=b"",
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
