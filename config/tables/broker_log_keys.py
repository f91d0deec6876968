"""Broker settings of logs, their retention and their compaction. Part of ``broker_keys.BROKER_KEYS``."""

from __future__ import annotations

from gregor.config.definitions import CLUSTER_WIDE, DOUBLE_MAX, INTERNAL, LONG_MAX, ConfigDef
from gregor.config.validators import at_least, between, one_of

_W = CLUSTER_WIDE  # rows without `dynamic` are read-only

_NO_REMOTE = "gregor has no remote storage"

_LOG = (
    ConfigDef("log.dir", "list", ["./gregor-data"], "Data folder, when log.dirs is unset."),
    ConfigDef("log.dirs", "list", None, "Data folders, separated by commas; unset: log.dir."),
    ConfigDef(
        "log.segment.bytes", "int", 1073741824, "Size at which a segment is closed.", at_least(1048576), dynamic=_W
    ),
    ConfigDef("log.roll.ms", "long", None, "Age at which a segment is closed; unset: log.roll.hours.", dynamic=_W),
    ConfigDef("log.roll.hours", "int", 168, "Age at which a segment is closed, in hours.", at_least(1)),
    ConfigDef(
        "log.roll.jitter.ms",
        "long",
        None,
        "Random time that the age is reduced by, so that segments do not close together; unset: log.roll.jitter.hours.",
        dynamic=_W,
    ),
    ConfigDef("log.roll.jitter.hours", "int", 0, "As log.roll.jitter.ms, in hours.", at_least(0)),
    ConfigDef(
        "log.retention.ms",
        "long",
        None,
        "Age at which a closed segment is deleted, -1: never; unset: log.retention.minutes.",
        dynamic=_W,
    ),
    ConfigDef("log.retention.minutes", "int", None, "As log.retention.ms, in minutes; unset: log.retention.hours."),
    ConfigDef("log.retention.hours", "int", 168, "As log.retention.ms, in hours."),
    ConfigDef(
        "log.retention.bytes",
        "long",
        -1,
        "Size of a partition above which its oldest segments are deleted; -1: no limit.",
        dynamic=_W,
    ),
    ConfigDef(
        "log.local.retention.bytes",
        "long",
        -2,
        "Local share of log.retention.bytes with remote storage; -2: the same value.",
        at_least(-2),
        dynamic=_W,
        no_effect=_NO_REMOTE,
    ),
    ConfigDef(
        "log.local.retention.ms",
        "long",
        -2,
        "Local share of log.retention.ms with remote storage; -2: the same value.",
        at_least(-2),
        dynamic=_W,
        no_effect=_NO_REMOTE,
    ),
    ConfigDef("log.retention.check.interval.ms", "long", 300000, "How often retention is checked.", at_least(1)),
    ConfigDef(
        "log.cleanup.policy",
        "list",
        ["delete"],
        "Treatment of old segments: delete, compact (keep the last value of each key), both, or neither.",
        one_of("compact", "delete"),
        dynamic=_W,
    ),
    ConfigDef(
        "log.index.size.max.bytes",
        "int",
        10485760,
        "Largest index file; a full index closes the segment.",
        at_least(4),
        dynamic=_W,
    ),
    ConfigDef(
        "log.index.interval.bytes",
        "int",
        4096,
        "Bytes of log between two index entries, at least.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.segment.delete.delay.ms",
        "long",
        60000,
        "How long the files of a deleted segment stay on disk, with the suffix .deleted.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.preallocate", "boolean", False, "Whether the file of a new segment is allocated in full.", dynamic=_W
    ),
    ConfigDef(
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "Source of the timestamp of a record: the producer (CreateTime) or the broker (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        dynamic=_W,
    ),
    ConfigDef(
        "log.message.timestamp.before.max.ms",
        "long",
        LONG_MAX,
        "Age above which a record is refused.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.message.timestamp.after.max.ms",
        "long",
        3600000,
        "How far the timestamp of a record may be in the future; a later one is refused.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.flush.interval.messages",
        "long",
        LONG_MAX,
        "Records between forced writes to disk.",
        at_least(1),
        dynamic=_W,
    ),
    ConfigDef(
        "log.flush.interval.ms",
        "long",
        None,
        "Longest time that a record stays only in the page cache; unset: log.flush.scheduler.interval.ms.",
        dynamic=_W,
    ),
    ConfigDef(
        "log.flush.scheduler.interval.ms", "long", LONG_MAX, "How often logs are checked against log.flush.interval.ms."
    ),
    ConfigDef(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60000,
        "How often recovery points are written to their checkpoint file.",
        at_least(0),
    ),
    ConfigDef(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60000,
        "How often log start offsets are written to their checkpoint file.",
        at_least(0),
        no_effect="log start offsets are written together with recovery points",
    ),
    ConfigDef(
        "num.recovery.threads.per.data.dir",
        "int",
        2,
        "Processes per data folder that recover logs at start, as far as there are processors for them.",
        at_least(1),
        dynamic=_W,
    ),
    ConfigDef(
        "log.initial.task.delay.ms",
        "long",
        30000,
        "Time before the first run of the periodic log tasks.",
        at_least(0),
        visibility=INTERNAL,
        no_effect="the periodic log tasks begin at once",
    ),
    ConfigDef(
        "log.dir.failure.timeout.ms",
        "long",
        30000,
        "Time within which a failed data folder must be reported to the controller.",
        at_least(1),
        no_effect="no notification is needed: the controller is in the same process",
    ),
)

_CLEANER = (
    ConfigDef(
        "log.cleaner.enable",
        "boolean",
        True,
        "Whether the log cleaner runs and compacts topics with cleanup.policy=compact.",
    ),
    ConfigDef("log.cleaner.threads", "int", 1, "Workers that compact logs.", at_least(0), dynamic=_W),
    ConfigDef(
        "log.cleaner.backoff.ms",
        "long",
        15000,
        "Pause after a run that found no log to compact.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.dedupe.buffer.size",
        "long",
        134217728,
        "Memory of the key maps of all workers, in bytes.",
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.io.buffer.size",
        "int",
        524288,
        "Memory of the read and write buffers, in bytes.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef("log.cleaner.io.buffer.load.factor", "double", 0.9, "Share of a key map that may be used.", dynamic=_W),
    ConfigDef(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "long",
        LONG_MAX,
        "Bytes per second of moves between data folders, at most; 0 pauses the moves.",
        at_least(0),
        dynamic=_W,
        visibility=INTERNAL,
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        DOUBLE_MAX,
        "Bytes per second that the log cleaner reads and writes, at most.",
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.min.cleanable.ratio",
        "double",
        0.5,
        "Share of a log that is not compacted yet at which its compaction is due.",
        between(0, 1),
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.delete.retention.ms",
        "long",
        86400000,
        "How long compaction keeps a delete marker.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.min.compaction.lag.ms",
        "long",
        0,
        "Age below which compaction leaves a record alone.",
        at_least(0),
        dynamic=_W,
    ),
    ConfigDef(
        "log.cleaner.max.compaction.lag.ms",
        "long",
        LONG_MAX,
        "Age of a record that is not compacted yet at which the compaction of its log is due.",
        at_least(1),
        dynamic=_W,
    ),
)

LOG_SETTINGS = (*_LOG, *_CLEANER)
