"""The topic settings, with the names, types, defaults and ranges of Apache Kafka 4.3.1 (``LogConfig``).

gregor's own begin with ``gregor.`` and are described only where they are set. ``broker_synonyms`` are the broker keys
whose value a topic without its own has, by falling rank.
"""

from __future__ import annotations

from gregor.config.definitions import CLUSTER_WIDE, INTERNAL, LISTED, LONG_MAX, ConfigDef
from gregor.config.validators import ANY_VALUE, ConfigValue, Form, Validator, at_least, between, one_of

_NO_REMOTE = "gregor has no remote storage"


def _are_throttled_replicas(value: ConfigValue) -> bool:
    return isinstance(value, list) and (value == ["*"] or all(map(_is_partition_and_broker, value)))


def _is_partition_and_broker(pair: str) -> bool:
    partition, colon, broker = pair.partition(":")
    return bool(colon) and partition.isdecimal() and broker.isdecimal()


_THROTTLED_REPLICAS = Form(_are_throttled_replicas, "* or partition:broker pairs such as 0:101,1:102")


def _topic(
    key: str,
    type: str,
    default: ConfigValue,
    help: str,
    *synonyms: str,
    validator: Validator = ANY_VALUE,
    visibility: str = LISTED,
    no_effect: str = "",
) -> ConfigDef:
    return ConfigDef(
        key,
        type,
        default,
        help,
        validator=validator,
        dynamic=CLUSTER_WIDE,
        broker_synonyms=synonyms,
        visibility=visibility,
        no_effect=no_effect,
    )


_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_DEFINITIONS = (
    _topic(
        "cleanup.policy",
        "list",
        ["delete"],
        "Treatment of old segments: delete, compact (keep the last value of each key), both, or neither.",
        "log.cleanup.policy",
        validator=one_of("compact", "delete"),
    ),
    _topic(
        "compression.type",
        "string",
        "producer",
        "Codec of stored batches; producer keeps the codec of the producer.",
        "compression.type",
        validator=one_of(*_COMPRESSIONS),
    ),
    _topic(
        "compression.gzip.level",
        "int",
        -1,
        "gzip level; -1: the default of gzip.",
        "compression.gzip.level",
        validator=between(1, 9, also=(-1,)),
    ),
    _topic("compression.lz4.level", "int", 9, "lz4 level.", "compression.lz4.level", validator=between(1, 17)),
    _topic("compression.zstd.level", "int", 3, "zstd level.", "compression.zstd.level", validator=between(-131072, 22)),
    _topic(
        "delete.retention.ms",
        "long",
        86400000,
        "How long compaction keeps a delete marker, so that readers from the start can see it.",
        "log.cleaner.delete.retention.ms",
        validator=at_least(0),
    ),
    _topic(
        "file.delete.delay.ms",
        "long",
        60000,
        "How long the files of a deleted segment stay on disk, with the suffix .deleted.",
        "log.segment.delete.delay.ms",
        validator=at_least(0),
    ),
    _topic(
        "flush.messages",
        "long",
        LONG_MAX,
        "Records between forced writes to disk.",
        "log.flush.interval.messages",
        validator=at_least(1),
    ),
    _topic(
        "flush.ms",
        "long",
        LONG_MAX,
        "Longest time that a record stays only in the page cache.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        validator=at_least(0),
    ),
    _topic(
        "follower.replication.throttled.replicas",
        "list",
        [],
        "Replicas whose fetches are throttled by follower.replication.throttled.rate: * or partition:broker pairs.",
        validator=_THROTTLED_REPLICAS,
    ),
    _topic(
        "gregor.deep.validation",
        "boolean",
        False,
        "Whether every record of a batch is validated before the batch is appended, in compressed batches too.",
        visibility=INTERNAL,
    ),
    _topic(
        "index.interval.bytes",
        "int",
        4096,
        "Bytes of log between two index entries, at least.",
        "log.index.interval.bytes",
        validator=at_least(0),
    ),
    _topic(
        "internal.segment.bytes",
        "int",
        None,
        "Segment size below the range of segment.bytes, for tests.",
        visibility=INTERNAL,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        "list",
        [],
        "Replicas whose fetches are throttled by leader.replication.throttled.rate: * or partition:broker pairs.",
        validator=_THROTTLED_REPLICAS,
    ),
    _topic(
        "local.retention.bytes",
        "long",
        -2,
        "Local share of retention.bytes with remote storage; -2: the same value.",
        "log.local.retention.bytes",
        validator=at_least(-2),
        no_effect=_NO_REMOTE,
    ),
    _topic(
        "local.retention.ms",
        "long",
        -2,
        "Local share of retention.ms with remote storage; -2: the same value.",
        "log.local.retention.ms",
        validator=at_least(-2),
        no_effect=_NO_REMOTE,
    ),
    _topic(
        "max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "Age of a record that is not compacted yet at which the compaction of its log is due.",
        "log.cleaner.max.compaction.lag.ms",
        validator=at_least(1),
    ),
    _topic(
        "max.message.bytes",
        "int",
        1048588,
        "Largest record batch (as stored, compressed) that is accepted.",
        "message.max.bytes",
        validator=at_least(0),
    ),
    _topic(
        "message.timestamp.after.max.ms",
        "long",
        3600000,
        "How far the timestamp of a record may be in the future; a later one is refused.",
        "log.message.timestamp.after.max.ms",
        validator=at_least(0),
    ),
    _topic(
        "message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "Age above which a record is refused.",
        "log.message.timestamp.before.max.ms",
        validator=at_least(0),
    ),
    _topic(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "Source of the timestamp of a record: the producer (CreateTime) or the broker (LogAppendTime).",
        "log.message.timestamp.type",
        validator=one_of(*_TIMESTAMP_TYPES),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "Share of a log that is not compacted yet at which its compaction is due.",
        "log.cleaner.min.cleanable.ratio",
        validator=between(0, 1),
    ),
    _topic(
        "min.compaction.lag.ms",
        "long",
        0,
        "Age below which compaction leaves a record alone.",
        "log.cleaner.min.compaction.lag.ms",
        validator=at_least(0),
    ),
    _topic(
        "min.insync.replicas",
        "int",
        1,
        "In-sync replicas that a write with acks=all needs, at least.",
        "min.insync.replicas",
        validator=at_least(1),
    ),
    _topic(
        "preallocate", "boolean", False, "Whether the file of a new segment is allocated in full.", "log.preallocate"
    ),
    _topic(
        "remote.log.copy.disable",
        "boolean",
        False,
        "Whether no more segments are copied to remote storage.",
        no_effect=_NO_REMOTE,
    ),
    _topic(
        "remote.log.delete.on.disable",
        "boolean",
        False,
        "Whether the remote segments are deleted when remote storage is disabled.",
        no_effect=_NO_REMOTE,
    ),
    _topic("remote.storage.enable", "boolean", False, "Remote storage; gregor has none, so that true is refused."),
    _topic(
        "retention.bytes",
        "long",
        -1,
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms",
        "long",
        604800000,
        "Age at which a closed segment is deleted; -1: never.",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        validator=at_least(-1),
    ),
    _topic(
        "segment.bytes",
        "int",
        1073741824,
        "Size at which a segment is closed.",
        "log.segment.bytes",
        validator=at_least(1048576),
    ),
    _topic(
        "segment.index.bytes",
        "int",
        10485760,
        "Largest index file; a full index closes the segment.",
        "log.index.size.max.bytes",
        validator=at_least(4),
    ),
    _topic(
        "segment.jitter.ms",
        "long",
        0,
        "Random time by which segment.ms is reduced, so that segments do not all close at once.",
        "log.roll.jitter.ms",
        "log.roll.jitter.hours",
        validator=at_least(0),
    ),
    _topic(
        "segment.ms",
        "long",
        604800000,
        "Age at which a segment is closed.",
        "log.roll.ms",
        "log.roll.hours",
        validator=at_least(1),
    ),
    _topic(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that is not in sync may lead when no in-sync replica is alive; records can be lost.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_KEYS: dict[str, ConfigDef] = {definition.key: definition for definition in _DEFINITIONS}
