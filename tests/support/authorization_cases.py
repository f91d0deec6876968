"""Requests about resources of two owners, and what their responses show of them: for guards and for their judge.

Topics, groups and transactional ids are called `mine-…` and `other-…`; both topics exist, and both groups have offsets.
No request changes what a later one is about, whether it is allowed or not.
"""

from __future__ import annotations

from typing import Any

from gregor.protocol import messages as m
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.records.batch import Record, build_batch

MINE, OTHER = "mine-topic", "other-topic"
TOPICS = (MINE, OTHER)
GROUPS = ("mine-group", "other-group")
TXNS = ("mine-txn", "other-txn")
Cases = dict[str, tuple[Any, int]]
_NAMES = frozenset(
    {
        *("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "feature", "user"),
        *("index", "partition", "partition_index", "partition_id", "topic_authorized_operations"),
        *("authorized_operations", "cluster_authorized_operations", "num_partitions", "replication_factor"),
    }
)
_PARTS = ("error_code", "partition_error_code", "topic_config_error_code")
_OLD_RESOURCES = (2, 4, 8)
"""Topics, brokers and loggers: the types whose configs Apache Kafka 3.9 has with ZooKeeper."""
_FILLERS = ("configs", "synonyms", "brokers", "node_endpoints", "active_producers", "unknown_state_filters", "acls")


def outline(message: Any) -> Any:
    """The names and the error codes of a response, without an order of its arrays."""
    found: dict[str, Any] = {}
    for field in type(message).__slots__ or type(message).__mro__[2].__slots__:  # a shared default has none of its own
        value = getattr(message, field)
        if field in _FILLERS:
            continue
        if isinstance(value, list):
            if value and hasattr(type(value[0]), "__slots__"):
                found[field] = sorted((outline(one) for one in value), key=str)
        elif (field in _PARTS and value) or field in _NAMES:
            found[field] = int(value) if isinstance(value, int) else value
    return found


def cases(ids: dict[str, Uuid]) -> Cases:
    return {**_data(ids), **_groups(ids), **_transactions(), **_topics(ids), **_cluster()}


def _batch(**fields: Any) -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v", [])], **fields))


def _produce(topics: list[tuple[str, Uuid]], records: bytes, transactional_id: str | None = None) -> Any:
    return m.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        transactional_id=transactional_id,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=records)],
            )
            for name, topic_id in topics
        ],
    )


def fetch(topics: list[tuple[str, Uuid]], replica_id: int = -1, **fields: Any) -> Any:
    return m.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=[
            m.FetchRequest.FetchTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    m.FetchRequest.FetchPartition(
                        partition=0, current_leader_epoch=0, fetch_offset=0, partition_max_bytes=1000
                    )
                ],
            )
            for name, topic_id in topics
        ],
        **fields,
    )


def _data(ids: dict[str, Uuid]) -> Cases:
    by_name = [(name, ZERO_UUID) for name in TOPICS]
    by_id = [("", ids[name]) for name in TOPICS]
    absent = [*by_name, ("other-absent", ZERO_UUID)]
    offsets = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            m.ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
            for name, _ in absent
        ],
    )
    epochs = m.OffsetForLeaderEpochRequest(
        replica_id=-2,
        topics=[
            m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=name,
                partitions=[m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
            )
            for name, _ in absent
        ],
    )
    deletes = m.DeleteRecordsRequest(
        timeout_ms=30_000,
        topics=[
            m.DeleteRecordsRequest.DeleteRecordsTopic(
                name=name,
                partitions=[m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)],
            )
            for name, _ in absent
        ],
    )
    producers = m.DescribeProducersRequest(
        topics=[m.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name, _ in absent]
    )
    transactional = _batch(producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True)
    return {
        "Produce": (_produce(absent, _batch()), 9),
        "Produce by id": (_produce(by_id, _batch()), 13),
        "Produce transactional": (_produce(by_name, transactional, "other-txn"), 9),
        "Produce transactional without id": (_produce(by_name, transactional), 9),
        "Fetch": (fetch(absent), 11),
        "Fetch by id": (fetch(by_id, session_epoch=-1), 16),
        "Fetch of a follower": (fetch(absent, replica_id=7, session_epoch=-1), 11),
        "ListOffsets": (offsets, 7),
        "OffsetForLeaderEpoch": (epochs, 4),
        "DeleteRecords": (deletes, 2),
        "DescribeProducers": (producers, 0),
    }


def _groups(ids: dict[str, Uuid]) -> Cases:
    commit, fetched = m.OffsetCommitRequest, m.OffsetFetchRequest
    found: Cases = {
        "DescribeGroups": (m.DescribeGroupsRequest(groups=[*GROUPS], include_authorized_operations=True), 5),
        "ListGroups": (m.ListGroupsRequest(), 4),
        "DeleteGroups": (m.DeleteGroupsRequest(groups_names=["mine-absent", "other-absent"]), 2),
        "ConsumerGroupDescribe": (
            m.ConsumerGroupDescribeRequest(group_ids=["mine-absent", "other-absent"]),
            0,
        ),
        "FindCoordinator of groups": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=[*GROUPS]), 4),
        "FindCoordinator of transactions": (m.FindCoordinatorRequest(key_type=1, coordinator_keys=[*TXNS]), 4),
        "OffsetFetch of many": (
            fetched(
                groups=[
                    fetched.OffsetFetchRequestGroup(
                        group_id=group,
                        topics=[
                            fetched.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
                            for name in (*TOPICS, "other-absent")
                        ],
                    )
                    for group in GROUPS
                ]
            ),
            8,
        ),
        "OffsetFetch of all topics": (
            fetched(groups=[fetched.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]),
            8,
        ),
    }
    for group in GROUPS:
        partition = commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_leader_epoch=-1, committed_metadata=""
        )
        commits = commit(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                commit.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in (*TOPICS, "other-absent")
            ],
        )
        by_id = commit(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[commit.OffsetCommitRequestTopic(topic_id=ids[name], partitions=[partition]) for name in TOPICS],
        )
        heartbeat = m.ConsumerGroupHeartbeatRequest(
            group_id=f"{group}-unknown", member_id="m", member_epoch=5, subscribed_topic_names=[*TOPICS]
        )
        member = m.LeaveGroupRequest.MemberIdentity(member_id="gone")
        found |= {
            f"OffsetCommit of {group}": (commits, 8),
            f"OffsetCommit by id of {group}": (by_id, 10),
            f"OffsetFetch of {group}": (
                fetched(
                    group_id=group,
                    topics=[fetched.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in TOPICS],
                ),
                7,
            ),
            f"JoinGroup of {group}": (
                m.JoinGroupRequest(
                    group_id=f"{group}-new",
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="stranger",
                    protocol_type="consumer",
                    protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
                ),
                7,
            ),
            f"Heartbeat of {group}": (m.HeartbeatRequest(group_id=group, generation_id=3, member_id="gone"), 3),
            f"LeaveGroup of {group}": (m.LeaveGroupRequest(group_id=group, members=[member]), 4),
            f"SyncGroup of {group}": (m.SyncGroupRequest(group_id=group, generation_id=3, member_id="gone"), 3),
            f"ConsumerGroupHeartbeat of {group}": (heartbeat, 0),
            f"OffsetDelete of {group}": (
                m.OffsetDeleteRequest(
                    group_id=group,
                    topics=[
                        m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                            name=name,
                            partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=9)],
                        )
                        for name in TOPICS
                    ],
                ),
                0,
            ),
        }
    return found


def _transactions() -> Cases:
    found: Cases = {
        "InitProducerId idempotent": (m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 2),
        "DescribeTransactions": (m.DescribeTransactionsRequest(transactional_ids=[*TXNS]), 0),
        "ListTransactions": (m.ListTransactionsRequest(), 0),
        "WriteTxnMarkers": (
            m.WriteTxnMarkersRequest(
                markers=[
                    m.WriteTxnMarkersRequest.WritableTxnMarker(
                        producer_id=5,
                        topics=[
                            m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="other-absent", partition_indexes=[0])
                        ],
                    )
                ]
            ),
            1,
        ),
        "AddPartitionsToTxn among brokers": (
            m.AddPartitionsToTxnRequest(
                transactions=[
                    m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                        transactional_id="other-txn",
                        producer_id=5,
                        verify_only=True,
                        topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=MINE, partitions=[0])],
                    )
                ]
            ),
            4,
        ),
    }
    # A producer id of no transactional id: an allowed request is refused by the coordinator.
    sender: dict[str, Any] = {"producer_id": 999_999, "producer_epoch": 0}
    for txn in TXNS:
        topics = [
            m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0, 9])
            for name in (*TOPICS, "__consumer_offsets")
        ]
        found |= {
            f"InitProducerId of {txn}": (
                m.InitProducerIdRequest(transactional_id=txn, transaction_timeout_ms=10**9),
                2,
            ),
            f"AddPartitionsToTxn of {txn}": (
                m.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=txn,
                    v3_and_below_producer_id=999_999,
                    v3_and_below_topics=topics,
                ),
                3,
            ),
            f"EndTxn of {txn}": (m.EndTxnRequest(transactional_id=txn, **sender), 3),
        }
        for group in GROUPS:
            found[f"AddOffsetsToTxn of {txn}, {group}"] = (
                m.AddOffsetsToTxnRequest(transactional_id=txn, group_id=group, **sender),
                3,
            )
            partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=9, committed_offset=0, committed_metadata=""
            )
            found[f"TxnOffsetCommit of {txn}, {group}"] = (
                m.TxnOffsetCommitRequest(
                    transactional_id=txn,
                    group_id=group,
                    topics=[
                        m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=[partition])
                        for name in TOPICS
                    ],
                    **sender,
                ),
                3,
            )
    return found


def _topics(ids: dict[str, Uuid]) -> Cases:
    metadata, create = m.MetadataRequest, m.CreateTopicsRequest
    named = [metadata.MetadataRequestTopic(name=name) for name in (*TOPICS, "other-absent", "mine-absent")]
    by_id = [metadata.MetadataRequestTopic(name=None, topic_id=ids[name]) for name in TOPICS]
    delete = m.DeleteTopicsRequest
    return {
        "Metadata": (
            metadata(
                topics=named,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
            8,
        ),
        "Metadata by id": (metadata(topics=by_id, allow_auto_topic_creation=False), 12),
        "Metadata of all topics": (metadata(topics=None, include_topic_authorized_operations=True), 9),
        "Metadata that creates": (metadata(topics=[metadata.MetadataRequestTopic(name="never-described")]), 8),
        "DescribeTopicPartitions": (
            m.DescribeTopicPartitionsRequest(
                topics=[
                    m.DescribeTopicPartitionsRequest.TopicRequest(name=name)
                    for name in (*TOPICS, "other-absent", "mine-absent")
                ],
                response_partition_limit=100,
            ),
            0,
        ),
        "DescribeTopicPartitions of all": (m.DescribeTopicPartitionsRequest(response_partition_limit=100), 0),
        "CreateTopics": (
            create(
                topics=[
                    create.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in (*TOPICS, "mine-new", "other-new")
                ],
                validate_only=True,
                timeout_ms=30_000,
            ),
            5,
        ),
        "CreatePartitions": (
            m.CreatePartitionsRequest(
                topics=[
                    m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None)
                    for name in (*TOPICS, "mine-absent")
                ],
                validate_only=True,
                timeout_ms=30_000,
            ),
            2,
        ),
        "DeleteTopics by name": (
            delete(topic_names=["mine-absent", "other-absent", "other-absent-2"], timeout_ms=30_000),
            4,
        ),
        "DeleteTopics by id": (
            delete(
                topics=[
                    delete.DeleteTopicState(name=None, topic_id=b"\7" * 16),
                    delete.DeleteTopicState(name="mine-absent"),
                    delete.DeleteTopicState(name="other-absent"),
                ],
                timeout_ms=30_000,
            ),
            6,
        ),
    }


def delete_by_id(topic_id: Uuid) -> tuple[Any, int]:
    """A request that only a client without DELETE may send without an effect."""
    wanted = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    return m.DeleteTopicsRequest(topics=[wanted], timeout_ms=30_000), 6


def _cluster() -> Cases:
    describe, alter = m.DescribeConfigsRequest, m.AlterConfigsRequest
    incremental, move = m.IncrementalAlterConfigsRequest, m.AlterPartitionReassignmentsRequest
    elect, folders = m.ElectLeadersRequest, m.AlterReplicaLogDirsRequest
    resources = [(2, MINE), (2, OTHER), (2, "other-absent"), (4, "0"), (8, "0"), (16, "metrics"), (32, GROUPS[1])]
    acl_filter: dict[str, Any] = {
        "resource_type_filter": 2,
        "resource_name_filter": "no-such-topic",
        "pattern_type_filter": 3,
        "principal_filter": "User:nobody",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {
        "DescribeConfigs": (
            describe(
                resources=[
                    describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                    for kind, name in resources
                ]
            ),
            4,
        ),
        "DescribeConfigs of topics and brokers": (
            describe(
                resources=[
                    describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                    for kind, name in resources
                    if kind in _OLD_RESOURCES
                ]
            ),
            4,
        ),
        "AlterConfigs": (
            alter(
                resources=[
                    alter.AlterConfigsResource(resource_type=kind, resource_name=name)
                    for kind, name in ((2, MINE), (2, OTHER), (4, "0"))
                ],
                validate_only=True,
            ),
            1,
        ),
        "IncrementalAlterConfigs": (
            incremental(
                resources=[
                    incremental.AlterConfigsResource(resource_type=kind, resource_name=name)
                    for kind, name in ((2, MINE), (2, OTHER), (4, "0"), (32, GROUPS[0]), (32, GROUPS[1]))
                ],
                validate_only=True,
            ),
            1,
        ),
        "ListConfigResources": (m.ListConfigResourcesRequest(resource_types=[16]), 1),
        "DescribeAcls": (m.DescribeAclsRequest(**acl_filter), 1),
        "DeleteAcls": (m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(**acl_filter)]), 1),
        "CreateAcls": (
            m.CreateAclsRequest(
                creations=[
                    m.CreateAclsRequest.AclCreation(
                        resource_type=2,
                        resource_name="no-such-topic",
                        resource_pattern_type=3,
                        principal="User:somebody",
                        host="*",
                        operation=3,
                        permission_type=3,
                    )
                ]
            ),
            1,
        ),
        "AlterReplicaLogDirs": (
            folders(
                dirs=[
                    folders.AlterReplicaLogDir(
                        path="/no/such/folder",
                        topics=[folders.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in TOPICS],
                    )
                ]
            ),
            1,
        ),
        "DescribeLogDirs": (m.DescribeLogDirsRequest(topics=[]), 3),
        "ElectLeaders": (
            elect(
                election_type=0,
                topic_partitions=[elect.TopicPartitions(topic=name, partitions=[0]) for name in TOPICS],
                timeout_ms=30_000,
            ),
            2,
        ),
        "AlterPartitionReassignments": (
            move(
                topics=[
                    move.ReassignableTopic(
                        name=name, partitions=[move.ReassignablePartition(partition_index=0, replicas=None)]
                    )
                    for name in TOPICS
                ],
                timeout_ms=30_000,
            ),
            0,
        ),
        "ListPartitionReassignments": (
            m.ListPartitionReassignmentsRequest(
                topics=[
                    m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                        name=MINE, partition_indexes=[0]
                    )
                ],
                timeout_ms=30_000,
            ),
            0,
        ),
        "UpdateFeatures": (
            m.UpdateFeaturesRequest(
                timeout_ms=30_000,
                validate_only=True,
                feature_updates=[
                    m.UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=2)
                ],
            ),
            1,
        ),
        "DescribeCluster": (m.DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
    }
