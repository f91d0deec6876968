"""Every node of the metadata tree: its path, and its bytes, as Apache Kafka 3.9.1 writes them (class ZkData).

Bytes are compact UTF-8 JSON. The order of the keys is that in which Kafka's hash maps yield them, because there are
tools that compare texts. Numbers are numbers except where a comment below has "string". All older versions of a node
are decoded; anything else raises NodeFormatError, never another error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from gregor.config.listeners import Listener
from gregor.protocol.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = CONFIG_CHANGES + "/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGNMENT = "/admin/reassign_partitions"
ISR_CHANGE_NOTIFICATIONS = "/isr_change_notification"
ISR_CHANGE_PREFIX = ISR_CHANGE_NOTIFICATIONS + "/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = LOG_DIR_EVENTS + "/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
CONSUMERS = "/consumers"

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

# Brokers create these at start, parents included. The sample of a 3.9.1 tree has exactly these.
PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGE_NOTIFICATIONS,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in CONFIG_TYPES),
)

# The epoch before the first controller's; its node starts at version 0, and each election adds one to both.
INITIAL_CONTROLLER_EPOCH = 0
PRODUCER_IDS_PER_BLOCK = 1000
MAX_FEATURE_LEVEL = 0x7FFF
DOWNGRADE_PHASE = "downgrade_phase"


# json.dumps makes an encoder for each call with other arguments than the defaults.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class NodeFormatError(ValueError):
    """The bytes of a node are not in a format that Kafka writes there."""


def encode_json(value: Mapping[str, Any]) -> bytes:
    return _to_json(value).encode()


def decode_json(data: bytes, what: str) -> dict[str, Any]:
    """Return the object of a node. `what` names the node in the NodeFormatError that other bytes raise."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NodeFormatError(f"{what}: {error}") from None
    if not isinstance(value, dict):
        raise NodeFormatError(f"{what}: not a JSON object")
    return value


def json_field(value: Mapping[str, Any], key: str, type_: type, what: str) -> Any:
    """Return a field of an object. Raises NodeFormatError if it is missing or of another type."""
    found = value.get(key)
    if not isinstance(found, type_) or (type_ is int and isinstance(found, bool)):
        raise NodeFormatError(f"{what}: {key} must be {type_.__name__}, is {found!r}")
    return found


def _ids(value: object, what: str) -> list[int]:
    if not isinstance(value, list) or not {int}.issuperset(map(type, value)):
        raise NodeFormatError(f"{what}: {value!r} is not a list of broker ids")
    return value


# -- /controller, /controller_epoch ----------------------------------------------------------------------------------


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    # timestamp is a string
    return encode_json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """Return the broker id. Versions 1 and 2 differ only in kraftControllerEpoch."""
    broker_id: int = json_field(decode_json(data, CONTROLLER), "brokerid", int, CONTROLLER)
    return broker_id


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    return _decode_number(data, CONTROLLER_EPOCH)


def _decode_number(data: bytes, what: str) -> int:
    if re.fullmatch(rb"-?[0-9]{1,10}", data) is None:
        raise NodeFormatError(f"{what}: {data[:40]!r} is not a number")
    return int(data)


# -- /brokers/ids/<id> -----------------------------------------------------------------------------------------------


class BrokerRegistration(NamedTuple):
    """A live broker as it registered itself. `endpoints` are its advertised listeners."""

    broker_id: int
    endpoints: tuple[Listener, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0
    features: Mapping[str, Mapping[str, int]] = {}


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Version 5 (Kafka 2.7). host and port are those of the first PLAINTEXT endpoint, else null and -1."""
    plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "features": broker.features,
        "listener_security_protocol_map": {e.name: e.security_protocol for e in broker.endpoints},
        "endpoints": [e.text for e in broker.endpoints],
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    value |= {
        "jmx_port": broker.jmx_port,
        "port": -1 if plaintext is None else plaintext.port,
        "host": None if plaintext is None else plaintext.host,
        "version": 5,
        "timestamp": str(broker.timestamp_ms),  # a string
    }
    return encode_json(value)


_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,5})")


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Versions 1 (host and port only), 2 (endpoints), 3 (rack), 4 (protocol map), 5 (features)."""
    what = broker_path(broker_id)
    value = decode_json(data, what)
    version = json_field(value, "version", int, what)
    if version < 1:
        raise NodeFormatError(f"{what}: version {version}")
    if version == 1:
        host, port = json_field(value, "host", str, what), json_field(value, "port", int, what)
        endpoints = [Listener("PLAINTEXT", host, port, "PLAINTEXT")]
    else:
        # Before version 4 a listener is named after its protocol.
        protocols = value.get("listener_security_protocol_map") or {}
        endpoints = []
        for text in json_field(value, "endpoints", list, what):
            match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
            if match is None or not isinstance(protocols, dict):
                raise NodeFormatError(f"{what}: endpoint {text!r}")
            name = match[1].upper()
            endpoints.append(Listener(name, match[2], int(match[3]), str(protocols.get(match[1], name))))
    rack = value.get("rack")
    timestamp = str(value.get("timestamp", ""))
    features = value.get("features")
    return BrokerRegistration(
        broker_id,
        tuple(endpoints),
        rack if isinstance(rack, str) else None,
        json_field(value, "jmx_port", int, what) if "jmx_port" in value else -1,
        int(timestamp) if re.fullmatch(r"[0-9]{1,19}", timestamp) else 0,
        features if isinstance(features, dict) else {},
    )


# -- /brokers/topics/<topic> -----------------------------------------------------------------------------------------


class ReplicaAssignment(NamedTuple):
    """`replicas` includes those being added and removed; the first is the preferred leader."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicAssignment(NamedTuple):
    topic_id: Uuid
    """ZERO_UUID where the node has none: an old tool wrote it."""
    partitions: dict[int, ReplicaAssignment]


def replica_assignments(assignments: Mapping[int, tuple[int, ...]]) -> dict[int, ReplicaAssignment]:
    """Return assignments of these replicas; equal ones share one object, as thousands of partitions have few different
    ones."""
    shared = {replicas: ReplicaAssignment(replicas) for replicas in set(assignments.values())}
    return {index: shared[replicas] for index, replicas in assignments.items()}


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3 (Kafka 2.8, topic ids)."""
    partitions = sorted(assignment.partitions.items())
    value: dict[str, Any] = {"partitions": {str(index): replicas.replicas for index, replicas in partitions}}
    if assignment.topic_id != ZERO_UUID:
        value["topic_id"] = uuid_to_text(assignment.topic_id)
    value["adding_replicas"] = {str(index): replicas.adding for index, replicas in partitions if replicas.adding}
    value["removing_replicas"] = {str(index): replicas.removing for index, replicas in partitions if replicas.removing}
    value["version"] = 3
    return encode_json(value)


def decode_topic(topic: str, data: bytes) -> Steps[TopicAssignment]:
    """Versions 1 (partitions only), 2 (adding and removing replicas), 3 (topic id)."""
    what = topic_path(topic)
    value = decode_json(data, what)
    topic_id = ZERO_UUID
    if (text := value.get("topic_id")) is not None:
        try:
            topic_id = uuid_from_text(text)
        except (ValueError, TypeError):
            raise NodeFormatError(f"{what}: topic_id {text!r}") from None
    adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
    if not isinstance(adding, dict) or not isinstance(removing, dict):
        raise NodeFormatError(f"{what}: adding_replicas and removing_replicas must be objects")
    partitions: dict[int, ReplicaAssignment] = {}
    shared: dict[tuple[int, ...], ReplicaAssignment] = {}
    for index, replicas in json_field(value, "partitions", dict, what).items():
        if not (index.isascii() and index.isdigit() and len(index) <= 9):
            raise NodeFormatError(f"{what}: partition {index!r}")
        if not len(partitions) % ITEMS_PER_STEP:
            yield None
        if not replicas:
            raise NodeFormatError(f"{what}: partition {index} has no replicas")
        if index not in adding and index not in removing:
            ids = tuple(_ids(replicas, what))
            partitions[int(index)] = shared.get(ids) or shared.setdefault(ids, ReplicaAssignment(ids))
            continue
        partitions[int(index)] = ReplicaAssignment(
            tuple(_ids(replicas, what)),
            tuple(_ids(adding[index], what)) if index in adding else (),
            tuple(_ids(removing[index], what)) if index in removing else (),
        )
    return TopicAssignment(topic_id, dict(sorted(partitions.items())))


# -- /brokers/topics/<topic>/partitions/<partition>/state ------------------------------------------------------------


class PartitionState(NamedTuple):
    """Leader and in-sync replicas of a partition. The node's data version is the partition epoch."""

    leader: int
    """-1: no leader."""
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    """The leader was elected uncleanly and has not reported yet that it recovered (KIP-704)."""


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def encode_state(state: PartitionState) -> bytes:
    # Written out: an encoder is ten times slower, and there are thousands of states after the end of a broker.
    recovering = b'"leader_recovery_state":1,' if state.recovering else b""
    return b'{"controller_epoch":%d,"leader":%d,"version":1,%b"leader_epoch":%d,"isr":[%b]}' % (
        state.controller_epoch,
        state.leader,
        recovering,
        state.leader_epoch,
        ",".join(map(str, state.isr)).encode(),
    )


def decode_state(data: bytes) -> PartitionState:
    what = "partition state"
    value = decode_json(data, what)
    return PartitionState(
        json_field(value, "leader", int, what),
        json_field(value, "leader_epoch", int, what),
        tuple(_ids(value.get("isr"), what)),
        json_field(value, "controller_epoch", int, what),
        value.get("leader_recovery_state", 0) == 1,
    )


# -- /config ---------------------------------------------------------------------------------------------------------


def config_path(entity_type: str, name: str) -> str:
    return f"{CONFIG}/{entity_type}/{name}"


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Return settings by key; an empty node has none."""
    if not data:
        return {}
    config = json_field(decode_json(data, "config"), "config", dict, "config")
    # Old tools wrote numbers without quotes.
    return {key: text if isinstance(text, str) else json.dumps(text) for key, text in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    return encode_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Return the changed entity as "topics/t", "brokers/<default>" …; version 1 has type and name in two fields."""
    what = "config change"
    value = decode_json(data, what)
    version = json_field(value, "version", int, what)
    if version == 1:
        return f"{json_field(value, 'entity_type', str, what)}/{json_field(value, 'entity_name', str, what)}"
    path: str = json_field(value, "entity_path", str, what)
    return path


# -- notifications and requests to the controller --------------------------------------------------------------------


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def encode_partition_list(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the partitions of /isr_change_notification and /admin/preferred_replica_election."""
    return encode_json(
        {"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]}
    )


def decode_partition_list(data: bytes) -> list[TopicPartition]:
    what = "partition list"
    partitions = []
    for entry in json_field(decode_json(data, what), "partitions", list, what):
        if not isinstance(entry, dict):
            raise NodeFormatError(f"{what}: {entry!r}")
        partitions.append(
            TopicPartition(json_field(entry, "topic", str, what), json_field(entry, "partition", int, what))
        )
    return partitions


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Return the target replicas of each partition of /admin/reassign_partitions."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)} for (topic, index), replicas in targets.items()
    ]
    return encode_json({"version": 1, "partitions": partitions})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    what = REASSIGNMENT
    targets = {}
    for entry in json_field(decode_json(data, what), "partitions", list, what):
        if not isinstance(entry, dict):
            raise NodeFormatError(f"{what}: {entry!r}")
        key = TopicPartition(json_field(entry, "topic", str, what), json_field(entry, "partition", int, what))
        targets[key] = tuple(_ids(entry.get("replicas"), what))
    return targets


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode the notice that a log folder of this broker failed (event 1, the only one)."""
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes) -> int:
    broker_id: int = json_field(decode_json(data, LOG_DIR_EVENTS), "broker", int, LOG_DIR_EVENTS)
    return broker_id


# -- the rest --------------------------------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})  # the version is a string, only here


def decode_cluster_id(data: bytes) -> str:
    cluster_id: str = json_field(decode_json(data, CLUSTER_ID), "id", str, CLUSTER_ID)
    return cluster_id


class ProducerIdBlock(NamedTuple):
    broker_id: int
    first_id: int
    last_id: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    # both ends are strings
    return encode_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first_id),
            "block_end": str(block.last_id),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    what = PRODUCER_ID_BLOCK
    value = decode_json(data, what)
    ends = json_field(value, "block_start", str, what), json_field(value, "block_end", str, what)
    if not all(re.fullmatch(r"[0-9]{1,19}", end) for end in ends):
        raise NodeFormatError(f"{what}: block {ends}")
    return ProducerIdBlock(json_field(value, "broker", int, what), int(ends[0]), int(ends[1]))


# -- /feature --------------------------------------------------------------------------------------------------------


class DowngradePhase(IntEnum):
    """How far the downgrade of a feature to level 0 has come on its way to the write of that level."""

    CLOSING = 1
    """Brokers admit nothing new that needs the feature; what exists is served."""
    ENDING = 2
    """Brokers end or convert what exists, as if the level were 0."""


NO_DOWNGRADES: Mapping[str, DowngradePhase] = {}


class FeatureLevels(NamedTuple):
    """`enabled`: the levels are in force; a broker with an inter.broker.protocol.version before 2.7 disables them.
    `downgrades`: the phases of the downgrades that are under way."""

    enabled: bool
    levels: dict[str, int]
    downgrades: Mapping[str, DowngradePhase]


def encode_features(levels: Mapping[str, int], downgrades: Mapping[str, DowngradePhase] = NO_DOWNGRADES) -> bytes:
    """Version 2 (Kafka 3.3), versioning enabled. A feature of level 0 is not in force, and is left out.

    The phase of a downgrade is beyond Kafka's format. Apache Kafka decodes the fields of a feature as a map of numbers,
    and a broker of it does not start while the node names a feature of ours."""
    features = {name: {"max_version_level": level} for name, level in sorted(levels.items()) if level > 0}
    for name, phase in downgrades.items():
        features[name][DOWNGRADE_PHASE] = int(phase)
    return encode_json({"features": features, "version": 2, "status": 1})


def decode_features(data: bytes) -> FeatureLevels:
    """Versions 1 (Kafka 2.7, with a lowest level, which has no effect) and 2."""
    value = decode_json(data, FEATURE)
    version, status = json_field(value, "version", int, FEATURE), json_field(value, "status", int, FEATURE)
    if version not in (1, 2) or status not in (0, 1):
        raise NodeFormatError(f"{FEATURE}: version {version}, status {status}")
    levels, downgrades = {}, {}
    for name, feature in json_field(value, "features", dict, FEATURE).items():
        if not isinstance(feature, dict):
            raise NodeFormatError(f"{FEATURE}: {name} must be an object, is {feature!r}")
        levels[name] = json_field(feature, "max_version_level", int, FEATURE)
        if not 1 <= levels[name] <= MAX_FEATURE_LEVEL:
            raise NodeFormatError(f"{FEATURE}: level {levels[name]} of {name}")
        if DOWNGRADE_PHASE in feature:
            phase = json_field(feature, DOWNGRADE_PHASE, int, FEATURE)
            if phase not in iter(DowngradePhase):
                raise NodeFormatError(f"{FEATURE}: {DOWNGRADE_PHASE} {phase} of {name}")
            downgrades[name] = DowngradePhase(phase)
    return FeatureLevels(status == 1, levels, downgrades)
