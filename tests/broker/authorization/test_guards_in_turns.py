"""Requests and responses with many names: their guards check them in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.authorization.guards.common import NAMES_AT_ONCE, NAMES_PER_STEP
from gregor.broker.authorization.guards.data import PRODUCE_TOPICS_AT_ONCE
from gregor.broker.authorization.guards.table import GUARDS
from gregor.broker.authorization.model import Operation, ResourceType
from gregor.broker.context import Call
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.registry import load_handlers
from gregor.protocol import messages as m
from gregor.protocol.errors import ErrorCode
from gregor.protocol.ids import ZERO_UUID
from tests.broker.harness import Harness, batch
from tests.support.authorizers import Check, FakeAuthorizer

NAMES = [f"n{number}" for number in range(5 * NAMES_AT_ONCE)]
MOST = NAMES_PER_STEP + 1
"""Checks in one turn: those of a step, and one of the cluster or of the group before the first."""


class Rules(FakeAuthorizer):
    """Denies everything but the checks on which `holds` does."""

    def __init__(self, holds: Callable[[Check], bool]) -> None:
        super().__init__()
        self._holds = holds

    def allows(
        self, call: Any, operation: Operation, resource: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        super().allows(call, operation, resource, name, logs_denial=logs_denial)
        return self._holds((operation, resource, name))


def nothing(_check: Check) -> bool:
    return False


def all_but_topics(check: Check) -> bool:
    return check[1] is not ResourceType.TOPIC


def served(
    request: Any, version: int, response: Any = None, holds: Callable[[Check], bool] = nothing
) -> tuple[Any, int, list[Any]]:
    """Return the response, the largest number of checks in one turn of the loop, and the requests that were served. The
    time of a turn is over after each step."""
    authorizer = Rules(holds)
    passed: list[Any] = []

    def serve(allowed: Any) -> Any:
        passed.append(allowed)
        return response

    async def run() -> tuple[Any, int]:
        broker = SimpleNamespace(
            authorizer=authorizer,
            gate=LoopGate(count().__next__),
            metadata=SimpleNamespace(topic_name=lambda _: None, topic=lambda name: name, partition_count=lambda _: 1),
        )
        seen = [0]
        call: Any = Call(SimpleNamespace(fail=None), request.API_KEY, version, 0, None)
        outcome = GUARDS[request.API_KEY](broker, request, call, serve)
        seen.append(len(authorizer.checks))
        if asyncio.iscoroutine(outcome):
            task = asyncio.ensure_future(outcome)
            while not task.done():
                await asyncio.sleep(0)
                seen.append(len(authorizer.checks))
            outcome = task.result()
        return outcome, max(after - before for before, after in pairwise(seen))

    outcome, most = asyncio.run(run())
    return outcome, most, passed


def _topics(make: Callable[..., Any], field: str = "name", **fields: Any) -> list[Any]:
    return [make(**{field: name}, **fields) for name in NAMES]


def _groups(names: Iterable[str]) -> m.ListGroupsResponse:
    return m.ListGroupsResponse(groups=[m.ListGroupsResponse.ListedGroup(group_id=name) for name in names])


MANY: dict[str, tuple[Any, int]] = {
    "FindCoordinator": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4),
    "ListOffsets": (m.ListOffsetsRequest(topics=_topics(m.ListOffsetsRequest.ListOffsetsTopic)), 7),
    "DeleteRecords": (m.DeleteRecordsRequest(topics=_topics(m.DeleteRecordsRequest.DeleteRecordsTopic)), 2),
    "DescribeGroups": (m.DescribeGroupsRequest(groups=NAMES), 5),
    "DeleteGroups": (m.DeleteGroupsRequest(groups_names=NAMES), 2),
    "ConsumerGroupDescribe": (m.ConsumerGroupDescribeRequest(group_ids=NAMES), 0),
    "DescribeTransactions": (m.DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "CreateTopics": (m.CreateTopicsRequest(topics=_topics(m.CreateTopicsRequest.CreatableTopic)), 5),
    "CreatePartitions": (m.CreatePartitionsRequest(topics=_topics(m.CreatePartitionsRequest.CreatePartitionsTopic)), 2),
    "DeleteTopics 5": (m.DeleteTopicsRequest(topic_names=NAMES), 5),
    "DeleteTopics 6": (
        m.DeleteTopicsRequest(topics=_topics(m.DeleteTopicsRequest.DeleteTopicState, topic_id=ZERO_UUID)),
        6,
    ),
    "OffsetFetch": (m.OffsetFetchRequest(groups=_topics(m.OffsetFetchRequest.OffsetFetchRequestGroup, "group_id")), 8),
    "DescribeConfigs": (
        m.DescribeConfigsRequest(
            resources=_topics(
                m.DescribeConfigsRequest.DescribeConfigsResource, "resource_name", resource_type=ResourceType.TOPIC
            )
        ),
        4,
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_many_names_that_are_denied(name: str) -> None:
    request, version = MANY[name]
    empty: Any = m.response_class(request.API_KEY)
    response, most, _ = served(request, version, empty())
    assert most <= MOST
    lists = [value for field in response.__slots__ if isinstance(value := getattr(response, field), list)]
    assert max(map(len, lists)) == len(NAMES)


def test_groups_are_hidden_in_turns() -> None:
    shown = set(NAMES[::2])

    def holds(check: Any) -> bool:
        return check[1] is ResourceType.GROUP and check[2] in shown

    response, most, _ = served(m.ListGroupsRequest(), 4, _groups(NAMES), holds)
    assert [group.group_id for group in response.groups] == NAMES[::2]
    assert most <= MOST


def test_topics_of_a_subscription_are_checked_in_turns() -> None:
    request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=NAMES)
    response, most, _ = served(request, 0, holds=all_but_topics)
    assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert most <= MOST


def test_topics_of_a_commit_are_split_in_turns() -> None:
    """The allowed ones are served, in their order."""
    make = m.OffsetCommitRequest.OffsetCommitRequestTopic
    request = m.OffsetCommitRequest(group_id="g", topics=[make(name=name) for name in NAMES])

    def holds(check: Any) -> bool:
        return check[1] is ResourceType.GROUP or check[2] in NAMES[::2]

    response, most, passed = served(request, 8, m.OffsetCommitResponse(topics=[]), holds)
    assert [topic.name for topic in passed[0].topics] == NAMES[::2]
    assert [topic.name for topic in response.topics] == NAMES[1::2]
    assert most <= MOST


def test_a_name_that_occurs_again_is_checked_once() -> None:
    request = m.DescribeGroupsRequest(groups=NAMES + NAMES)
    authorizer = Rules(nothing)
    broker: Any = SimpleNamespace(authorizer=authorizer, gate=LoopGate())
    call: Any = Call(SimpleNamespace(), request.API_KEY, 5, 0, None)
    response = asyncio.run(GUARDS[request.API_KEY](broker, request, call, lambda _: None))
    assert len(response.groups) == 2 * len(NAMES)
    assert len(authorizer.checks) == len(NAMES)


def test_few_names_are_checked_at_once() -> None:
    request = m.DescribeGroupsRequest(groups=NAMES[:NAMES_AT_ONCE])
    call: Any = Call(SimpleNamespace(), request.API_KEY, 5, 0, None)
    broker: Any = SimpleNamespace(authorizer=Rules(lambda _: True), gate=LoopGate())
    assert GUARDS[request.API_KEY](broker, request, call, lambda request: request) is request


_INDEXES = list(range(len(NAMES)))
_Elect, _Move, _Quotas, _Markers = (
    m.ElectLeadersRequest,
    m.AlterPartitionReassignmentsRequest,
    m.AlterClientQuotasRequest,
    m.WriteTxnMarkersRequest,
)
REFUSED_BY_CLUSTER: dict[str, tuple[Any, int]] = {
    "ElectLeaders": (_Elect(topic_partitions=[_Elect.TopicPartitions(topic="t", partitions=_INDEXES)]), 2),
    "AlterPartitionReassignments": (
        _Move(
            topics=[
                _Move.ReassignableTopic(
                    name="t", partitions=[_Move.ReassignablePartition(partition_index=index) for index in _INDEXES]
                )
            ]
        ),
        0,
    ),
    "AlterClientQuotas": (_Quotas(entries=[_Quotas.EntryData(entity=[], ops=[]) for _ in NAMES]), 1),
    "WriteTxnMarkers": (
        _Markers(
            markers=[
                _Markers.WritableTxnMarker(
                    producer_id=1,
                    topics=[_Markers.WritableTxnMarkerTopic(name="t", partition_indexes=_INDEXES)],
                )
            ]
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", REFUSED_BY_CLUSTER)
def test_a_long_refusal_is_made_in_turns(name: str) -> None:
    request, version = REFUSED_BY_CLUSTER[name]
    call: Any = Call(SimpleNamespace(), request.API_KEY, version, 0, None)
    broker: Any = SimpleNamespace(authorizer=Rules(nothing), gate=LoopGate())
    outcome = GUARDS[request.API_KEY](broker, request, call, lambda _: None)
    assert asyncio.iscoroutine(outcome)
    found = str(asyncio.run(outcome)).count("CLUSTER_AUTHORIZATION_FAILED")
    assert found >= len(NAMES)


@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_many_topics_of_a_produce_request(harness: Harness, acks: int, codec: str) -> None:
    """The records, of which the request has the only copy until its handler returns, are appended before the next
    request: the connection is held until then, also where they are compressed on a thread first."""
    allowed = f"{codec}-{acks}"
    harness.create_topic(allowed, compression_type=codec)
    names = [*(f"n{number}" for number in range(PRODUCE_TOPICS_AT_ONCE)), allowed]
    values = [b"value %d of quite some length" % number for number in range(3000)]
    records = batch(*values)
    topics = []
    for name in names:
        part = m.ProduceRequest.PartitionProduceData(index=0, records=records if name == allowed else None)
        topics.append(m.ProduceRequest.TopicProduceData(name=name, partition_data=[part]))
    authorizer = Rules(lambda check: check[2] == allowed)
    connection: Any = harness.connection
    harness.broker.authorizer, harness.broker.handlers = authorizer, load_handlers(guarded=True)
    try:
        begun = harness.begin(m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), 9, turns=1)
        assert connection.held
        response = harness.run(begun)
        harness.until(lambda: not connection.held)
    finally:
        harness.broker.authorizer, harness.broker.handlers = None, load_handlers()
    assert len(authorizer.checks) == len(names)
    assert [record.value for record in harness.records(allowed)] == values
    if acks:
        errors = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
        assert errors == {**dict.fromkeys(names, ErrorCode.TOPIC_AUTHORIZATION_FAILED), allowed: 0}
    else:
        assert response is None
        assert "not authorized" in connection.failures.pop()
