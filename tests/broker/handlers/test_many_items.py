"""Requests about tens of thousands of items: their handlers hold up the loop for less than 10 ms at a time."""

from __future__ import annotations

from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.context import Call
from gregor.broker.handlers.k29_describe_acls import describe_acls
from gregor.broker.jobs.turns import LoopGate
from gregor.broker.registry import load_handlers
from gregor.protocol import messages as m
from gregor.protocol.acls import Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode
from tests.broker.harness import Harness
from tests.broker.loop_lag import loop_lag_during

COUNT = 20_000
NAMES = [f"n{number}" for number in range(COUNT)]


async def answer(harness: Harness, request: Any, version: int) -> Any:
    connection: Any = harness.connection
    call = Call(connection, request.API_KEY, version, 0, None)
    result = harness.broker.handlers[request.API_KEY].handler(harness.broker, request, call)
    if isinstance(result, Deferred):
        return await outcome_of(result, harness.loop.create_future())
    return await result if isinstance(result, Awaitable) else result


def within(harness: Harness, request: Any, version: int) -> Any:
    """The response, which was made within the limit."""
    response, lag = harness.run(loop_lag_during(answer(harness, request, version)))
    assert lag.within(), lag
    return response


def produce_to(topic: str, indexes: range) -> m.ProduceRequest:
    parts = [m.ProduceRequest.PartitionProduceData(index=index, records=None) for index in indexes]
    return m.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=parts)]
    )


@pytest.mark.slow
def test_produce(harness: Harness) -> None:
    (topic,) = within(harness, produce_to("absent", range(COUNT)), 9).responses
    assert [part.index for part in topic.partition_responses] == list(range(COUNT))
    assert {part.error_code for part in topic.partition_responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.slow
def test_describe_configs(harness: Harness) -> None:
    make = m.DescribeConfigsRequest.DescribeConfigsResource
    resources = [make(resource_type=2, resource_name=name) for name in NAMES]
    request = m.DescribeConfigsRequest(resources=[*resources, make(resource_type=99, resource_name="odd")])
    results = within(harness, request, 4).results
    assert [result.resource_name for result in results] == [*NAMES, "odd"]
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.slow
def test_alter_client_quotas(harness: Harness) -> None:
    make = m.AlterClientQuotasRequest
    entities = [[make.EntityData(entity_type="odd", entity_name=name)] for name in NAMES]
    request = make(entries=[make.EntryData(entity=entity, ops=[]) for entity in entities], validate_only=True)
    entries = within(harness, request, 1).entries
    assert {entry.error_code for entry in entries} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.slow
def test_incremental_alter_configs(harness: Harness) -> None:
    make = m.IncrementalAlterConfigsRequest
    names = [f"n{number}" for number in range(4 * COUNT)]
    configs = [make.AlterableConfig(name=name, value="1") for name in [*names, names[0]]]
    resource = make.AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    (result,) = within(harness, make(resources=[resource]), 1).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "once only" in result.error_message


@pytest.mark.slow
def test_describe_acls(harness: Harness) -> None:
    rules = [Rule(f"User:u{number}", Permission.ALLOW, Operation.READ) for number in range(4)]
    patterns = [Pattern(ResourceType.TOPIC, name, PatternType.LITERAL) for name in NAMES[: COUNT // 4]]
    acls = SimpleNamespace(matching=lambda _: ((pattern, rules) for pattern in patterns))
    broker: Any = SimpleNamespace(gate=LoopGate(), security=SimpleNamespace(acls=acls))
    names = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    request = m.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **names
    )
    call: Any = None
    response, lag = harness.run(loop_lag_during(describe_acls(broker, request, call)))
    assert lag.within(), lag
    assert [resource.resource_name for resource in response.resources] == NAMES[: COUNT // 4]
    assert {len(resource.acls) for resource in response.resources} == {4}


@pytest.mark.parametrize(
    ("topics", "parts", "short"), [(1, 500, True), (1, 501, False), (10, 49, True), (10, 50, False)]
)
def test_a_long_response_to_produce_is_encoded_in_steps(topics: int, parts: int, short: bool) -> None:
    entry = load_handlers()[0]
    assert not entry.carries_records
    make = m.ProduceResponse
    answers = [make.PartitionProduceResponse(index=index) for index in range(parts)]
    topic = make.TopicProduceResponse(name="t", partition_responses=answers)
    assert entry.is_short(make(responses=[topic] * topics)) is short
