"""Fetch (1): records from an offset on, for consumers and followers.

1: throttle time. 2: record batches of magic 1. 3: a limit of bytes for the whole response (KIP-74). 4: isolation level
and aborted transactions. 5: log start offset. 7: sessions that send only changes (KIP-227). 9: the leader epoch is
checked (KIP-320). 10: zstd. 11: read from the closest replica (KIP-392). 12: flexible, diverging epochs (KIP-595).
13: topic ids for names. 15: the follower's epoch (KIP-903). 16: endpoints of new leaders (KIP-951). 17: directory id
(KIP-853). 18: the follower's high watermark (KIP-1166).
"""

from gregor.protocol.codec.model import Field, Message

REQUEST = Message(
    "FetchRequest",
    api_key=1,
    versions="0-18",
    flexible="12+",
    fields=[
        Field(
            "cluster_id",
            "string",
            "12+",
            nullable="12+",
            default=None,
            tag=0,
            ignorable=True,
            help="Cluster of the client, or null; checked if given.",
        ),
        Field("replica_id", "int32", "0-14", default=-1, help="Broker id of a follower, -1 for a consumer."),
        Field(
            "replica_state",
            "ReplicaState",
            "15+",
            tag=1,
            help="The follower.",
            fields=[
                Field("replica_id", "int32", "15+", default=-1, help="Broker id of a follower, -1 for a consumer."),
                Field(
                    "replica_epoch",
                    "int64",
                    "15+",
                    default=-1,
                    help="Broker epoch of the follower, -1 when unknown.",
                ),
            ],
        ),
        Field("max_wait_ms", "int32", help="Longest wait for `min_bytes` to arrive."),
        Field("min_bytes", "int32", help="Minimum size of the response, unless the wait ends."),
        Field(
            "max_bytes",
            "int32",
            "3+",
            default=0x7FFFFFFF,
            ignorable=True,
            help="Maximum bytes of all records; the first batch is complete even if it is larger.",
        ),
        Field("isolation_level", "int8", "4+", ignorable=True, help="0 reads all records, 1 only committed ones."),
        Field("session_id", "int32", "7+", ignorable=True, help="Fetch session, 0 to open one."),
        Field(
            "session_epoch",
            "int32",
            "7+",
            default=-1,
            ignorable=True,
            help="Number of this request in its session: 0 opens, -1 is without or closes.",
        ),
        Field(
            "topics",
            "[]FetchTopic",
            help="Topics to read; in a session, those that are new or changed.",
            fields=[
                Field("topic", "string", "0-12", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "13+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partitions",
                    "[]FetchPartition",
                    help="Partitions to read.",
                    fields=[
                        Field("partition", "int32", help="Partition number."),
                        Field(
                            "current_leader_epoch",
                            "int32",
                            "9+",
                            default=-1,
                            ignorable=True,
                            help="Leader epoch as the client knows it, to be checked; -1 for no check.",
                        ),
                        Field("fetch_offset", "int64", help="Offset to read from."),
                        Field(
                            "last_fetched_epoch",
                            "int32",
                            "12+",
                            default=-1,
                            help="Leader epoch of the last record that the follower has, -1 for none.",
                        ),
                        Field(
                            "log_start_offset",
                            "int64",
                            "5+",
                            default=-1,
                            ignorable=True,
                            help="First offset of the follower, -1 from a consumer.",
                        ),
                        Field(
                            "partition_max_bytes",
                            "int32",
                            help="Maximum bytes of this partition; the first batch is complete even if it is larger.",
                        ),
                        Field(
                            "replica_directory_id",
                            "uuid",
                            "17+",
                            tag=0,
                            ignorable=True,
                            help="Log directory of the follower.",
                        ),
                        Field(
                            "high_watermark",
                            "int64",
                            "18+",
                            default=0x7FFFFFFFFFFFFFFF,
                            tag=1,
                            ignorable=True,
                            help="High watermark that the follower knows: -1 for none, the default if it sends none.",
                        ),
                    ],
                ),
            ],
        ),
        Field(
            "forgotten_topics_data",
            "[]ForgottenTopic",
            "7+",
            help="Topics to drop from the session.",
            fields=[
                Field("topic", "string", "7-12", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "13+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field("partitions", "[]int32", "7+", help="Partition numbers."),
            ],
        ),
        Field("rack_id", "string", "11+", ignorable=True, help="Rack of the consumer, for the replica selector."),
    ],
)

RESPONSE = Message(
    "FetchResponse",
    api_key=1,
    versions="0-18",
    flexible="12+",
    fields=[
        Field(
            "throttle_time_ms",
            "int32",
            "1+",
            ignorable=True,
            help="Milliseconds for which the broker throttles the client, which exceeded a quota; 0 if it did not.",
        ),
        Field("error_code", "int16", "7+", ignorable=True, help="An ErrorCode; 0 for success."),
        Field("session_id", "int32", "7+", help="Fetch session, 0 for none."),
        Field(
            "responses",
            "[]FetchableTopicResponse",
            help="Topics; in a session, only those with changes.",
            fields=[
                Field("topic", "string", "0-12", ignorable=True, help="Topic name."),
                Field("topic_id", "uuid", "13+", ignorable=True, help="Topic id; all zeros if unknown."),
                Field(
                    "partitions",
                    "[]PartitionData",
                    help="Partitions.",
                    fields=[
                        Field("partition_index", "int32", help="Partition number."),
                        Field("error_code", "int16", help="An ErrorCode; 0 for success."),
                        Field("high_watermark", "int64", help="Offset up to which records are committed."),
                        Field(
                            "last_stable_offset",
                            "int64",
                            "4+",
                            default=-1,
                            ignorable=True,
                            help="Offset below which every transaction has ended, -1 when unknown.",
                        ),
                        Field(
                            "log_start_offset",
                            "int64",
                            "5+",
                            default=-1,
                            ignorable=True,
                            help="First offset that the log still contains, -1 when unknown.",
                        ),
                        Field(
                            "diverging_epoch",
                            "EpochEndOffset",
                            "12+",
                            tag=0,
                            help="The last epoch that both logs share, when the follower must truncate.",
                            fields=[
                                Field("epoch", "int32", "12+", default=-1, help="Leader epoch, -1 for none."),
                                Field(
                                    "end_offset",
                                    "int64",
                                    "12+",
                                    default=-1,
                                    help="Offset after its last record, -1 for none.",
                                ),
                            ],
                        ),
                        Field(
                            "current_leader",
                            "LeaderIdAndEpoch",
                            "12+",
                            tag=1,
                            help="The leader known to this broker, if that is another broker.",
                            fields=[
                                Field(
                                    "leader_id",
                                    "int32",
                                    "12+",
                                    default=-1,
                                    help="Broker id of the leader, -1 when unknown.",
                                ),
                                Field(
                                    "leader_epoch",
                                    "int32",
                                    "12+",
                                    default=-1,
                                    help="Epoch of that leadership, -1 when unknown.",
                                ),
                            ],
                        ),
                        Field(
                            "snapshot_id",
                            "SnapshotId",
                            "12+",
                            tag=2,
                            help="Snapshot to load if the requested offset no longer exists; for raft only.",
                            fields=[
                                Field(
                                    "end_offset",
                                    "int64",
                                    default=-1,
                                    help="Offset after its last record, -1 for none.",
                                ),
                                Field("epoch", "int32", default=-1, help="Leader epoch, -1 for none."),
                            ],
                        ),
                        Field(
                            "aborted_transactions",
                            "[]AbortedTransaction",
                            "4+",
                            nullable="4+",
                            ignorable=True,
                            help="Aborted transactions among the records, by first offset, or null.",
                            fields=[
                                Field("producer_id", "int64", "4+", help="Producer id."),
                                Field("first_offset", "int64", "4+", help="Offset at which that transaction starts."),
                            ],
                        ),
                        Field(
                            "preferred_read_replica",
                            "int32",
                            "11+",
                            default=-1,
                            help="Broker to read from next time, -1 to stay.",
                        ),
                        Field(
                            "records",
                            "records",
                            nullable="0+",
                            help="Record batches from the one with the offset on; the last may be incomplete.",
                        ),
                    ],
                ),
            ],
        ),
        Field(
            "node_endpoints",
            "[]NodeEndpoint",
            "16+",
            tag=0,
            help="Addresses of the leaders named above.",
            fields=[
                Field("node_id", "int32", "16+", help="Broker id."),
                Field("host", "string", "16+", help="Host name to connect to."),
                Field("port", "int32", "16+", help="TCP port."),
                Field("rack", "string", "16+", nullable="16+", default=None, help="Rack of the broker, or null."),
            ],
        ),
    ],
)
