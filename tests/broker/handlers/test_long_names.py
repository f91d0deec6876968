"""Names and values as long as the protocol allows: a refusal is answered, however often its reason repeats them."""

from __future__ import annotations

import pytest

from gregor.protocol.codec.primitives import MAX_STRING_BYTES
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterConfigsRequest,
    ApiMessage,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)
from tests.broker.harness import Harness

LONG = "x" * MAX_STRING_BYTES
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def altered(kind: int, name: str, *configs: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    make = IncrementalAlterConfigsRequest.AlterableConfig
    listed = [make(name=key, config_operation=operation, value=value) for key, operation, value in configs]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=listed
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def created(**fields: object) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(**{"name": "t", "num_partitions": -1, "replication_factor": -1} | fields)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def described(kind: int, name: str) -> DescribeConfigsRequest:
    make = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(resources=[make(resource_type=kind, resource_name=name, configuration_keys=None)])


Assigned = CreateTopicsRequest.CreatableReplicaAssignment
REFUSED: list[tuple[ApiMessage, int]] = [
    (altered(TOPIC, "t", ("retention.ms", SET, LONG)), 1),
    (altered(TOPIC, "t", (LONG, SET, "1")), 1),
    (altered(TOPIC, "t", *((f"key{number}", SET, None) for number in range(6000))), 1),
    (altered(TOPIC, LONG, ("retention.ms", SET, "1")), 1),
    (altered(BROKER, LONG, ("message.max.bytes", SET, "1")), 1),
    (altered(BROKER, "0", ("message.max.bytes", SET, LONG)), 1),
    (altered(BROKER, "0", (LONG, SET, "1")), 1),
    (altered(LOGGER, "0", (LONG, SET, "INFO")), 1),
    (altered(LOGGER, "0", ("root", SET, LONG)), 1),
    (altered(GROUP, "g", ("consumer.session.timeout.ms", SET, LONG)), 1),
    (altered(GROUP, "g", (LONG, SET, "1")), 1),
    (altered(METRICS, "m", ("match", SET, LONG)), 1),
    (created(configs=[CreateTopicsRequest.CreatableTopicConfig(name=LONG, value=LONG)]), 7),
    (created(assignments=[Assigned(partition_index=index, broker_ids=[0]) for index in range(5, 9000)]), 7),
    (created(assignments=[Assigned(partition_index=0, broker_ids=list(range(1, 9000)))]), 7),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=LONG, count=2)]),
        3,
    ),
    (DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=LONG)], timeout_ms=1000), 6),
    (ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=LONG, partitions=[0])]), 2),
    (described(TOPIC, LONG), 4),
    (described(TOPIC, " " * MAX_STRING_BYTES), 4),
    (described(BROKER, LONG), 4),
    (described(LOGGER, LONG), 4),
    (
        AlterConfigsRequest(
            resources=[
                AlterConfigsRequest.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=[AlterConfigsRequest.AlterableConfig(name=LONG, value=LONG)],
                )
            ]
        ),
        2,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version"), REFUSED, ids=[f"{number}-{type(one).__name__}" for number, (one, _) in enumerate(REFUSED)]
)
def test_what_is_refused_is_answered(harness: Harness, request_: ApiMessage, version: int) -> None:
    answer = harness.ask(request_, version)
    (one,) = next(getattr(answer, name) for name in ("responses", "topics", "results", "replica_election_results")
                  if hasattr(answer, name))  # fmt: skip
    if isinstance(request_, ElectLeadersRequest):
        (one,) = one.partition_result
    assert one.error_code != 0
    assert 0 < len(one.error_message) < 3000


def test_groups(harness: Harness) -> None:
    harness.ask(FindCoordinatorRequest(key="g"), 0)
    harness.until(lambda: harness.ask(ListGroupsRequest(), 0).error_code == 0)
    (group,) = harness.ask(DescribeGroupsRequest(groups=[LONG]), 6).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and group.group_id == LONG


def test_a_value_that_grows_piece_by_piece(harness: Harness, topic: str) -> None:
    """Apache Kafka 4 also refuses a value that no answer could contain."""
    harness.create_topic(topic)
    key, codes = "leader.replication.throttled.replicas", []
    for replica in range(3):
        piece = ",".join(f"{partition}:{replica}" for partition in range(2000))
        codes.append(harness.ask(altered(TOPIC, topic, (key, APPEND, piece)), 1).responses[0].error_code)
    assert codes == [0, 0, ErrorCode.INVALID_CONFIG]
    assert harness.ask(described(TOPIC, topic), 4).results[0].error_code == 0
