"""Requests about thousands of things at once: others get their turn in between."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from gregor.broker.handlers.k75_describe_topic_partitions import SORTED_AT_ONCE
from gregor.broker.jobs import turns
from gregor.coordinator.group.coordinator import GROUPS_PER_DELETION
from gregor.coordinator.group.pieces import PARTITIONS_PER_COMMIT, PARTITIONS_PER_FETCH
from gregor.protocol.messages import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.broker.harness import Harness

MANY = 50
TOPIC = 2
INDEXES = range(MANY)
NAMES = [f"no-{number}" for number in range(MANY)]
GROUP_PIECES = 20
"""Turns that are wanted of requests which the group coordinator cuts into pieces."""


def offset_fetch(version: int) -> OffsetFetchRequest:
    indexes = list(range(GROUP_PIECES * PARTITIONS_PER_FETCH))
    if version < 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="no-topic", partition_indexes=indexes)
        return OffsetFetchRequest(group_id="g", topics=[topic])
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="no-topic", partition_indexes=indexes)]
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)])


UNKNOWN_ID = bytes(range(16))
OF_UNKNOWN_ID = partial(OffsetFetchRequest.OffsetFetchRequestTopics, topic_id=UNKNOWN_ID)


def offset_fetch_group(topics: list[Any]) -> OffsetFetchRequest.OffsetFetchRequestGroup:
    return OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)


REQUESTS: dict[str, tuple[Any, int, int]] = {
    "DescribeUserScramCredentials": (
        DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in NAMES]
        ),
        0,
        2 * MANY,
    ),
    "ListOffsets": (
        ListOffsetsRequest(
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="no-topic",
                    partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=index) for index in INDEXES],
                )
            ]
        ),
        6,
        MANY,
    ),
    "ListOffsets of empty partitions by time": (
        ListOffsetsRequest(
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="wide",
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=5) for index in INDEXES
                    ],
                )
            ]
        ),
        6,
        3 * MANY,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="no-topic",
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=index) for index in INDEXES
                    ],
                )
            ]
        ),
        4,
        MANY,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="no-topic",
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0)
                        for index in INDEXES
                    ],
                )
            ]
        ),
        2,
        MANY,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
                for name in NAMES
            ]
        ),
        4,
        MANY,
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[
                AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in NAMES
            ]
        ),
        2,
        MANY,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=name)
                for name in NAMES
            ]
        ),
        1,
        MANY,
    ),
    "DescribeTopicPartitions": (
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in NAMES]
        ),
        0,
        MANY,
    ),
    "AlterReplicaLogDirs": (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="no-topic", partitions=list(INDEXES))
                    ],
                )
            ]
        ),
        2,
        MANY,
    ),
    "CreateTopics": (
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(name=name, num_partitions=0, replication_factor=1) for name in NAMES
            ],
            timeout_ms=1000,
        ),
        7,
        3 * MANY,
    ),
    "DeleteTopics": (
        DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in NAMES], timeout_ms=1000
        ),
        6,
        4 * MANY,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2) for name in NAMES],
            timeout_ms=1000,
        ),
        3,
        MANY,
    ),
    "ElectLeaders": (
        ElectLeadersRequest(
            election_type=0,
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="no-topic", partitions=list(INDEXES))],
            timeout_ms=1000,
        ),
        2,
        2 * MANY,
    ),
    "Metadata": (
        MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        9,
        MANY,
    ),
    "FindCoordinator": (FindCoordinatorRequest(coordinator_keys=NAMES), 4, MANY),
    "DescribeGroups": (DescribeGroupsRequest(groups=NAMES), 5, MANY),
    "DeleteGroups": (
        DeleteGroupsRequest(groups_names=[f"no-{number}" for number in range(2 * GROUP_PIECES * GROUPS_PER_DELETION)]),
        2,
        GROUP_PIECES,
    ),
    "OffsetFetch of version 7": (offset_fetch(7), 7, 2 * GROUP_PIECES - 1),
    "OffsetFetch of one group": (offset_fetch(8), 8, GROUP_PIECES - 1),
    "OffsetFetch of many groups": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(group_id=f"g{number}", topics=[])
                for number in range(GROUP_PIECES)
            ]
        ),
        8,
        GROUP_PIECES,
    ),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="no-topic", partitions=list(INDEXES))
            ],
        ),
        3,
        MANY,
    ),
    "AddPartitionsToTxn of many transactions": (
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id=name) for name in NAMES
            ]
        ),
        5,
        MANY,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=7,
                    topics=[
                        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="wide", partition_indexes=list(INDEXES))
                    ],
                )
            ]
        ),
        1,
        MANY,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="wide", partition_indexes=list(INDEXES))]
        ),
        0,
        MANY,
    ),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=NAMES), 0, MANY),
    "FindCoordinator of transactional ids": (FindCoordinatorRequest(key_type=1, coordinator_keys=NAMES), 4, MANY),
    "DescribeTopicPartitions of many names": (
        DescribeTopicPartitionsRequest(
            topics=[
                DescribeTopicPartitionsRequest.TopicRequest(name=f"no-{number}")
                for number in range(GROUP_PIECES * SORTED_AT_ONCE // 10)
            ],
            cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="no-1", partition_index=0),
        ),
        0,
        3 * GROUP_PIECES * SORTED_AT_ONCE // 10,
    ),
    "OffsetFetch of unknown topic ids": (
        OffsetFetchRequest(groups=[offset_fetch_group([OF_UNKNOWN_ID(partition_indexes=[0]) for _ in INDEXES])]),
        10,
        2 * MANY,
    ),
    "OffsetFetch of many partitions of an unknown topic id": (
        OffsetFetchRequest(groups=[offset_fetch_group([OF_UNKNOWN_ID(partition_indexes=list(INDEXES))])]),
        10,
        MANY,
    ),
    "OffsetCommit of unknown topic ids": (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=UNKNOWN_ID, partitions=[])
                for _ in range(PARTITIONS_PER_COMMIT + 1)
            ],
        ),
        10,
        PARTITIONS_PER_COMMIT,
    ),
}

WITHOUT_PARTITIONS: dict[str, tuple[Any, int]] = {
    "ListOffsets": (ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="wide")] * MANY), 6),
    "OffsetCommit": (
        OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="wide")] * (PARTITIONS_PER_COMMIT + 1),
        ),
        8,
    ),
    "OffsetFetch of version 0": (
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="wide")] * MANY),
        0,
    ),
    "OffsetFetch of version 7": (
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="wide")] * MANY),
        7,
    ),
    "DeleteRecords": (DeleteRecordsRequest(topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="wide")] * MANY), 2),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="wide")] * MANY),
        4,
    ),
    "AddPartitionsToTxn": (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="wide")] * MANY,
        ),
        3,
    ),
    "WriteTxnMarkers": (
        WriteTxnMarkersRequest(markers=[WriteTxnMarkersRequest.WritableTxnMarker(producer_id=7)] * MANY),
        1,
    ),
    "TxnOffsetCommit": (
        TxnOffsetCommitRequest(
            group_id="g", topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="wide")] * MANY
        ),
        3,
    ),
    "ElectLeaders": (
        ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="wide")] * MANY),
        2,
    ),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name="wide")] * MANY
        ),
        0,
    ),
    "ListPartitionReassignments": (
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="wide")] * MANY
        ),
        0,
    ),
    "OffsetDelete": (
        OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name="wide")] * MANY),
        0,
    ),
    "DescribeProducers": (
        DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name="wide")] * MANY),
        0,
    ),
}
REQUESTS |= {
    f"{name}, topics without partitions": (request, version, MANY)
    for name, (request, version) in WITHOUT_PARTITIONS.items()
}


@pytest.fixture(scope="module")
def wide(harness: Harness) -> Harness:
    harness.create_topic("wide", MANY)
    harness.ask(FindCoordinatorRequest(key="g", key_type=0), 1)
    return harness


@pytest.mark.parametrize("name", REQUESTS)
def test_others_get_their_turn(wide: Harness, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request, version, wanted = REQUESTS[name]
    monkeypatch.setattr(turns, "TURN_S", -1.0)  # time is up after each step

    async def turns_taken() -> int:
        taken = 0
        asked = asyncio.ensure_future(wide.answer(request, version, "tests"))
        while not asked.done():
            taken += 1
            await asyncio.sleep(0)
        asked.result()
        return taken

    assert wide.run(turns_taken()) >= wanted
