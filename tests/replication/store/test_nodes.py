"""Nodes: equal to what Apache Kafka 3.9.1 left in ZooKeeper; older versions read; damage as NodeFormatError, never
another error."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.listeners import Listener
from gregor.protocol.ids import ZERO_UUID, uuid_from_text
from gregor.protocol.turns import run_all
from gregor.replication.store import nodes
from gregor.replication.store.nodes import (
    BrokerRegistration,
    NodeFormatError,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

# Two Apache Kafka 3.9.1 brokers wrote this (topic demo, a client quota, a default broker setting).
RECORDED = """
/brokers/ids/0 {"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:23300"],"jmx_port":-1,"port":23300,"host":"127.0.0.1","version":5,"timestamp":"1795264974647"}
/brokers/topics/demo {"partitions":{"0":[1,0],"1":[0,1]},"topic_id":"ST_DYboMSwu29fD6Z_eltQ","adding_replicas":{},"removing_replicas":{},"version":3}
/brokers/topics/demo/partitions/0/state {"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,0]}
/cluster/id {"version":"1","id":"XoSDzgrARomkabma0vbG8w"}
/config/brokers/<default> {"version":1,"config":{"log.cleaner.threads":"1"}}
/config/changes/config_change_0000000001 {"version":2,"entity_path":"brokers/<default>"}
/config/topics/demo {"version":1,"config":{"retention.ms":"60000"}}
/controller {"version":2,"brokerid":0,"timestamp":"1795264974826","kraftControllerEpoch":-1}
/controller_epoch 1
/feature {"features":{},"version":2,"status":1}
"""  # noqa: E501 (recorded text)

PLAIN = Listener("PLAINTEXT", "127.0.0.1", 23300, "PLAINTEXT")
DEMO = TopicAssignment(
    uuid_from_text("ST_DYboMSwu29fD6Z_eltQ"), {0: ReplicaAssignment((1, 0)), 1: ReplicaAssignment((0, 1))}
)


def test_paths_and_bytes_equal_the_recording() -> None:
    ours = {
        nodes.broker_path(0): nodes.encode_broker(BrokerRegistration(0, (PLAIN,), timestamp_ms=1795264974647)),
        nodes.topic_path("demo"): nodes.encode_topic(DEMO),
        nodes.state_path("demo", 0): nodes.encode_state(PartitionState(1, 0, (1, 0), 1)),
        nodes.CLUSTER_ID: nodes.encode_cluster_id("XoSDzgrARomkabma0vbG8w"),
        nodes.config_path("brokers", "<default>"): nodes.encode_config({"log.cleaner.threads": "1"}),
        nodes.CONFIG_CHANGE_PREFIX + "0000000001": nodes.encode_config_change("brokers/<default>"),
        nodes.config_path("topics", "demo"): nodes.encode_config({"retention.ms": "60000"}),
        nodes.CONTROLLER: nodes.encode_controller(0, 1795264974826),
        nodes.CONTROLLER_EPOCH: nodes.encode_controller_epoch(1),
        nodes.FEATURE: nodes.encode_features({}),
    }
    recorded = dict(line.split(" ", 1) for line in RECORDED.strip().splitlines())
    assert {path: data.decode() for path, data in ours.items()} == recorded


def test_the_nodes_of_a_start_are_those_recorded() -> None:
    recorded = """/admin/delete_topics /brokers/ids /brokers/seqid /brokers/topics /config/brokers /config/changes
    /config/clients /config/ips /config/topics /config/users /consumers /isr_change_notification
    /latest_producer_id_block /log_dir_event_notification"""
    assert sorted(nodes.PERSISTENT_PATHS) == recorded.split()


def test_forms_the_recording_lacks() -> None:
    broker = BrokerRegistration(7, (Listener("TLS", "::1", 9093, "SSL"),), rack="r1")
    assert nodes.encode_broker(broker) == (
        b'{"features":{},"listener_security_protocol_map":{"TLS":"SSL"},"endpoints":["TLS://[::1]:9093"],'
        b'"rack":"r1","jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"0"}'
    )
    moving = TopicAssignment(ZERO_UUID, {10: ReplicaAssignment((1, 2), (2,), (1,)), 2: ReplicaAssignment((1,))})
    assert nodes.encode_topic(moving) == (
        b'{"partitions":{"2":[1],"10":[1,2]},"adding_replicas":{"10":[2]},"removing_replicas":{"10":[1]},"version":3}'
    )
    assert nodes.encode_state(PartitionState(-1, 3, (2,), 9, recovering=True)) == (
        b'{"controller_epoch":9,"leader":-1,"version":1,"leader_recovery_state":1,"leader_epoch":3,"isr":[2]}'
    )
    assert nodes.encode_producer_id_block(ProducerIdBlock(1, 0, 999)) == (
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    )
    assert nodes.encode_partition_list([("t", 0)]) == b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    assert nodes.encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    assert nodes.encode_config({"k": "ü"}) == '{"version":1,"config":{"k":"ü"}}'.encode()


REPLICAS = st.lists(st.integers(0, 9), max_size=4, unique=True).map(tuple)


@settings(max_examples=25, deadline=None)
@given(
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.dictionaries(
        st.integers(0, 99),
        st.tuples(REPLICAS.filter(bool), REPLICAS, REPLICAS).map(lambda t: ReplicaAssignment(*t)),
        max_size=5,
    ),
    state=st.tuples(st.integers(-1, 9), st.integers(0), REPLICAS, st.integers(0), st.booleans()),
    config=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_encoded_nodes_decode_to_the_same_values(
    topic_id: bytes, partitions: Any, state: Any, config: dict[str, str]
) -> None:
    topic = TopicAssignment(topic_id, partitions)
    assert run_all(nodes.decode_topic("t", nodes.encode_topic(topic))) == topic
    assert nodes.decode_state(nodes.encode_state(PartitionState(*state))) == PartitionState(*state)
    assert nodes.decode_config(nodes.encode_config(config)) == config


def test_finalised_features_are_read_back() -> None:
    levels = {"transaction.version": 2, "group.version": 1}
    data = nodes.encode_features({**levels, "off": 0})
    assert data == (
        b'{"features":{"group.version":{"max_version_level":1},"transaction.version":{"max_version_level":2}},'
        b'"version":2,"status":1}'
    )
    assert nodes.decode_features(data) == (True, levels, {})
    phases = {"group.version": nodes.DowngradePhase.ENDING}
    data = nodes.encode_features(levels, phases)
    assert b'{"max_version_level":1,"downgrade_phase":2}' in data
    assert nodes.decode_features(data) == (True, levels, phases)
    with pytest.raises(nodes.NodeFormatError, match="downgrade_phase 3 of group.version"):
        nodes.decode_features(data.replace(b'phase":2', b'phase":3'))
    older = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert nodes.decode_features(older) == (False, {"f": 3}, {})


@pytest.mark.parametrize(
    "text",
    [
        '{"version":3,"status":1,"features":{}}',
        '{"version":2,"status":2,"features":{}}',
        '{"version":2,"status":1}',
        '{"version":2,"status":1,"features":{"f":2}}',
        '{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}',
        '{"version":2,"status":1,"features":{"f":{"max_version_level":32768}}}',
    ],
)
def test_features_in_another_form_are_refused(text: str) -> None:
    with pytest.raises(NodeFormatError):
        nodes.decode_features(text.encode())


def test_a_partition_without_replicas_is_refused() -> None:
    with pytest.raises(NodeFormatError, match="/brokers/topics/t: partition 3 has no replicas"):
        run_all(nodes.decode_topic("t", b'{"version":3,"partitions":{"0":[1],"3":[]}}'))


def test_small_nodes_are_read_back() -> None:
    assert nodes.decode_controller(nodes.encode_controller(3, 5)) == 3
    assert nodes.decode_controller_epoch(b"12") == 12
    assert nodes.decode_cluster_id(nodes.encode_cluster_id("x")) == "x"
    block = ProducerIdBlock(1, 2**62, 2**62 + 999)
    assert nodes.decode_producer_id_block(nodes.encode_producer_id_block(block)) == block
    assert nodes.decode_partition_list(nodes.encode_partition_list([("a", 1), ("b", 2)])) == [("a", 1), ("b", 2)]
    assert nodes.decode_log_dir_event(nodes.encode_log_dir_event(4)) == 4
    broker = BrokerRegistration(
        1, (PLAIN, Listener("IN", "::1", 1, "SASL_SSL")), "r", 99, 12, {"f": {"min_version": 1, "max_version": 2}}
    )
    assert nodes.decode_broker(1, nodes.encode_broker(broker)) == broker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"22"}', "PLAINTEXT://h:9092"),
        ('{"version":2,"host":"h","port":1,"jmx_port":1,"timestamp":"2","endpoints":["SSL://h:2"]}', "SSL://h:2"),
        (
            '{"version":4,"host":null,"port":-1,"jmx_port":1,"timestamp":"2","endpoints":["IN://h:2"],'
            '"listener_security_protocol_map":{"IN":"SSL"},"rack":"r"}',
            "IN://h:2",
        ),
    ],
)
def test_older_broker_registrations(text: str, expected: str) -> None:
    assert [endpoint.text for endpoint in nodes.decode_broker(0, text.encode()).endpoints] == [expected]


@pytest.mark.parametrize("timestamp", ["", "x", "-1", "\u00b2", "9" * 5000])
def test_a_registration_time_that_is_none_counts_as_the_oldest(timestamp: str) -> None:
    text = json.dumps({"version": 1, "host": "h", "port": 1, "timestamp": timestamp})
    assert nodes.decode_broker(0, text.encode()).timestamp_ms == 0


def test_older_topics_and_changes() -> None:
    assert run_all(nodes.decode_topic("t", b'{"version":1,"partitions":{"1":[2,3],"0":[1]}}')) == TopicAssignment(
        ZERO_UUID, {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2, 3))}
    )
    assert nodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    assert nodes.decode_config_change(nodes.encode_config_change("users/u")) == "users/u"
    assert nodes.decode_config(b"") == {}
    assert nodes.decode_config(b'{"version":1,"config":{"a":1,"b":true,"c":"x"}}') == {"a": "1", "b": "true", "c": "x"}


DECODERS: list[Any] = [
    nodes.decode_controller,
    nodes.decode_controller_epoch,
    lambda data: nodes.decode_broker(0, data),
    lambda data: run_all(nodes.decode_topic("t", data)),
    nodes.decode_state,
    nodes.decode_config,
    nodes.decode_config_change,
    nodes.decode_partition_list,
    nodes.decode_log_dir_event,
    nodes.decode_cluster_id,
    nodes.decode_producer_id_block,
    nodes.decode_features,
]
SAMPLES = [line.split(" ", 1)[1].encode() for line in RECORDED.strip().splitlines()] + [
    nodes.encode_producer_id_block(ProducerIdBlock(1, 0, 999)),
    nodes.encode_partition_list([("t", 0)]),
]


@settings(max_examples=80, deadline=None)
@given(
    decoder=st.sampled_from(DECODERS),
    sample=st.sampled_from(SAMPLES),
    cut=st.integers(0, 300),
    junk=st.one_of(
        st.binary(max_size=4), st.sampled_from([b"null", b"[]", b"{}", b'"x"', b"-1", b"1e9", b"true", b"9" * 30])
    ),
    swap=st.integers(0, 12),
)
def test_damage_raises_only_the_documented_error(decoder: Any, sample: bytes, cut: int, junk: bytes, swap: int) -> None:
    values = [
        part for part in sample.replace(b"{", b"{|").replace(b",", b"|,|").replace(b":", b":|").split(b"|") if part
    ]
    values[swap % len(values)] = junk
    for data in (sample[:cut], sample[:cut] + junk + sample[cut:], junk, b"".join(values)):
        with contextlib.suppress(NodeFormatError):
            decoder(data)


@pytest.mark.parametrize("decoder", DECODERS)
def test_something_else_is_refused(decoder: Any) -> None:
    for data in (b"[]", b'"x"', b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(NodeFormatError):
            decoder(data)
