"""The broker settings of groups: the classic protocol, committed offsets, and the consumer protocol (KIP-848)."""

from __future__ import annotations

from gregor.config.definitions import CLUSTER_WIDE, INT_MAX, INTERNAL, RETIRED, ConfigDef
from gregor.config.validators import ConfigValue, Form, at_least, one_of

GROUP_PROTOCOLS = ("classic", "consumer", "share", "streams")
MIGRATION_POLICIES = ("bidirectional", "disabled", "downgrade", "upgrade")

_JAVA_ASSIGNORS = "org.apache.kafka.coordinator.group.assignor."
ASSIGNORS = {
    "uniform": "uniform",
    "range": "range",
    f"{_JAVA_ASSIGNORS}UniformAssignor": "uniform",
    f"{_JAVA_ASSIGNORS}RangeAssignor": "range",
}
"""The names of the assignors, by what group.consumer.assignors may call them."""


def _are_assignors(value: ConfigValue) -> bool:
    return isinstance(value, list) and bool(value) and all(name in ASSIGNORS for name in value)


def _is_policy(value: ConfigValue) -> bool:
    return isinstance(value, str) and value.lower() in MIGRATION_POLICIES


_CLASSIC = (
    ConfigDef(
        "group.initial.rebalance.delay.ms",
        "int",
        3000,
        "How long a new group waits for more members before its first rebalance.",
    ),
    ConfigDef("group.min.session.timeout.ms", "int", 6000, "Shortest session timeout that a member may request."),
    ConfigDef("group.max.session.timeout.ms", "int", 1800000, "Longest session timeout that a member may request."),
    ConfigDef("group.max.size", "int", INT_MAX, "Members of a group, at most.", at_least(1)),
)

_OFFSETS = (
    ConfigDef("offset.metadata.max.bytes", "int", 4096, "Longest metadata text of a committed offset, in bytes."),
    ConfigDef(
        "offsets.load.buffer.size", "int", 5242880, "Bytes per read while a coordinator loads its groups.", at_least(1)
    ),
    ConfigDef("offsets.topic.replication.factor", "short", 3, "Replicas of __consumer_offsets.", at_least(1)),
    ConfigDef("offsets.topic.num.partitions", "int", 50, "Partitions of __consumer_offsets.", at_least(1)),
    ConfigDef("offsets.topic.segment.bytes", "int", 104857600, "Segment size of __consumer_offsets.", at_least(1)),
    ConfigDef(
        "offsets.topic.compression.codec",
        "int",
        0,
        "Codec number of __consumer_offsets; 0: none.",
        no_effect="committed offsets are stored without compression",
    ),
    ConfigDef(
        "offsets.retention.minutes",
        "int",
        10080,
        "How long committed offsets are kept after the last member has left the group.",
        at_least(1),
    ),
    ConfigDef(
        "offsets.retention.check.interval.ms", "long", 600000, "How often expired offsets are removed.", at_least(1)
    ),
    ConfigDef(
        "offsets.commit.timeout.ms",
        "int",
        5000,
        "How long an offset commit waits for the in-sync replicas.",
        at_least(1),
    ),
    ConfigDef(
        "offsets.commit.required.acks",
        "short",
        -1,
        "Acknowledgements that an offset commit waits for; -1: all in-sync replicas.",
        visibility=RETIRED,
        no_effect="an offset commit always waits for all in-sync replicas",
    ),
)

_CONSUMER = (
    ConfigDef(
        "group.coordinator.rebalance.protocols",
        "list",
        ["classic", "consumer", "streams"],
        "Group protocols that are served: classic always, consumer if it is named; gregor has neither streams nor "
        "share groups, whether they are named or not.",
        one_of(*GROUP_PROTOCOLS),
    ),
    ConfigDef(
        "group.consumer.session.timeout.ms",
        "int",
        45000,
        "Time without a heartbeat after which a member of a consumer group is removed.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.min.session.timeout.ms",
        "int",
        45000,
        "Least value of a group's own consumer.session.timeout.ms.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.max.session.timeout.ms",
        "int",
        60000,
        "Largest value of a group's own consumer.session.timeout.ms.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5000,
        "How often a member of a consumer group sends a heartbeat.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5000,
        "Least value of a group's own consumer.heartbeat.interval.ms.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        15000,
        "Largest value of a group's own consumer.heartbeat.interval.ms.",
        at_least(1),
    ),
    ConfigDef(
        "group.consumer.assignment.interval.ms",
        "int",
        1000,
        "Least time between two assignments of a consumer group; 0: none.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "group.consumer.min.assignment.interval.ms",
        "int",
        0,
        "Least value of a group's own consumer.assignment.interval.ms.",
        at_least(0),
    ),
    ConfigDef(
        "group.consumer.max.assignment.interval.ms",
        "int",
        15000,
        "Largest value of a group's own consumer.assignment.interval.ms.",
        at_least(0),
    ),
    ConfigDef("group.consumer.max.size", "int", INT_MAX, "Members of a consumer group, at most.", at_least(1)),
    ConfigDef(
        "group.consumer.assignors",
        "list",
        ["uniform", "range"],
        "Assignors of the broker, the default first: uniform, range.",
        Form(_are_assignors, f"a comma-separated list of {', '.join(ASSIGNORS)}: gregor loads no Java classes"),
    ),
    ConfigDef(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        "Whether groups change between the classic and the consumer protocol: upgrade to it, downgrade from it, both "
        "(bidirectional), or neither (disabled).",
        Form(_is_policy, f"one of {', '.join(MIGRATION_POLICIES)}"),
    ),
    ConfigDef(
        "group.consumer.regex.refresh.interval.ms",
        "int",
        600000,
        "How often topic patterns of consumer groups are matched again.",
        at_least(10000),
        visibility=INTERNAL,
    ),
)

GROUP_SETTINGS = (*_CLASSIC, *_OFFSETS, *_CONSUMER)
