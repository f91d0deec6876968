"""Targets of text: settings, the nodes of the metadata tree, and the arguments that the command line parses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from gregor.broker.cli.client import parse_bootstrap
from gregor.broker.cli.configs import parse_settings
from gregor.broker.cli.console_consumer import parse_offset
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.get_offsets import parse_time, rules_filter, topic_filter
from gregor.broker.cli.groups.reset import parse_datetime_ms, parse_duration_ms, parse_scope, read_plan
from gregor.broker.cli.line_reader import LineReader
from gregor.broker.cli.record_format import decoder
from gregor.broker.cli.topics import matching_topics, parse_assignment
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigDef, ConfigError
from gregor.config.listeners import Listener, check_ports, parse_listeners, parse_protocol_map
from gregor.config.properties import PropertiesError, parse_properties
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.client_metrics import CLIENT_METRICS_KEYS, check_client_metrics
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.topic import parse_overrides
from gregor.protocol.acls import Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.turns import run_all
from gregor.replication.entities import acl_nodes
from gregor.replication.store import nodes
from tests.fuzz.runner import Seed, Target


def targets() -> list[Target]:
    return [
        Target("properties", read_properties, properties_seeds, (PropertiesError,), weight=16, text=True),
        Target("server.properties", read_server, server_seeds, (PropertiesError, ConfigError), weight=1, text=True),
        Target(
            "values of broker settings", read_broker_value, broker_value_seeds, (ConfigError,), weight=10, text=True
        ),
        Target("values of topic settings", read_topic_value, topic_value_seeds, (ConfigError,), weight=10, text=True),
        Target("listeners", read_listeners, listener_seeds, (ConfigError,), weight=10, text=True),
        Target("nodes", read_node, node_seeds, (nodes.NodeFormatError,), weight=24, text=True),
        Target(
            "arguments",
            read_argument,
            argument_seeds,
            (CommandError, click.UsageError, ValueError),
            weight=12,
            text=True,
        ),
    ]


def text_of(data: bytes) -> str:
    """As a file that is no UTF-8 is read: byte by byte."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


# -- settings ----------------------------------------------------------------------------------------------------------

SERVER = r"""# a comment
broker.id=0
listeners=PLAINTEXT://localhost:9092,EXTERNAL://0.0.0.0:0
advertised.listeners = PLAINTEXT://a:9092,EXTERNAL://example.org:9094
listener.security.protocol.map: PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT
log.dirs=/data/a,\
         /data/b
num.partitions 3
log.retention.hours=168
log.cleanup.policy=compact,delete
max.connections.per.ip.overrides=127.0.0.1:5
a\ key=caf\u00e9\tand more
"""


def properties_seeds() -> list[Seed]:
    return [(None, SERVER.encode()), (None, b"a=b\r\nc:d\re f\\\n  g\n!x\n\\u0041=\\u00e9"), (None, b"")]


def read_properties(context: None, data: bytes) -> None:
    for key, value in parse_properties(text_of(data)).items():
        assert isinstance(key, str) and isinstance(value, str)


def server_seeds() -> list[Seed]:
    return [(None, SERVER.encode()), (None, b"log.retention.ms=5\nlisteners=PLAINTEXT://:1\nunknown.key=1\n")]


def read_server(context: None, data: bytes) -> None:
    BrokerConfig(parse_properties(text_of(data)))


def broker_value_seeds() -> list[Seed]:
    return value_seeds(BROKER_KEYS)


def value_seeds(definitions: Mapping[str, ConfigDef]) -> list[Seed]:
    """The defaults, and 5 or a word where there is none."""
    seeds: list[Seed] = []
    for key, definition in definitions.items():
        text = definition.format(definition.default)
        if text is None:
            text = "5" if definition.type in ("short", "int", "long", "double") else "word"
        seeds.append((key, text.encode()))
    return seeds


def read_broker_value(key: str, data: bytes) -> None:
    definition = BROKER_KEYS[key]
    value = definition.parse(text_of(data))
    text = definition.format(value)
    assert text is None or not isinstance(value, (int, float)) or definition.parse(text) == value or value != value


def topic_value_seeds() -> list[Seed]:
    return [*value_seeds(TOPIC_KEYS), *value_seeds(CLIENT_METRICS_KEYS), ("match", b"client_id=a.*,client_id=b{2}")]


def read_topic_value(key: str, data: bytes) -> None:
    if key in CLIENT_METRICS_KEYS:
        check_client_metrics({key: text_of(data)})
    else:
        parse_overrides({key: text_of(data)})


def listener_seeds() -> list[Seed]:
    texts = ["PLAINTEXT://localhost:9092", "A://[::1]:9092,B://0.0.0.0:9092,C://:0", "B://x:1,PLAINTEXT://y:65535"]
    maps = ["PLAINTEXT:PLAINTEXT,SSL:SSL,A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"]
    return [("listeners", text.encode()) for text in texts] + [("map", text.encode()) for text in maps]


def read_listeners(context: str, data: bytes) -> None:
    if context == "map":
        parse_protocol_map(text_of(data))
        return
    protocols = dict.fromkeys(("PLAINTEXT", "A", "B", "C"), "PLAINTEXT") | {"SSL": "SSL"}
    found = parse_listeners("listeners", text_of(data).split(","), protocols, frozenset())
    check_ports("listeners", found)
    assert all(0 <= listener.port < 65536 for listener in found)


# -- nodes -------------------------------------------------------------------------------------------------------------

REGISTRATION = nodes.BrokerRegistration(
    3,
    (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"), Listener("X", "::1", 1, "SSL")),
    "rack",
    -1,
    1700000000000,
)
ASSIGNMENT = nodes.TopicAssignment(
    bytes(range(16)), {0: nodes.ReplicaAssignment((1, 2, 3), (3,), (1,)), 1: nodes.ReplicaAssignment((2,))}
)
RULE = Rule("User:alice", Permission.DENY, Operation.READ)
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "controller": nodes.decode_controller,
    "controller epoch": nodes.decode_controller_epoch,
    "broker": lambda data: nodes.decode_broker(3, data),
    "topic": lambda data: run_all(nodes.decode_topic("orders", data)),
    "state": nodes.decode_state,
    "config": nodes.decode_config,
    "config change": nodes.decode_config_change,
    "partition list": nodes.decode_partition_list,
    "log dir event": nodes.decode_log_dir_event,
    "cluster id": nodes.decode_cluster_id,
    "producer id block": nodes.decode_producer_id_block,
    "features": nodes.decode_features,
    "access rules": lambda data: acl_nodes.decode_rules(data, "rules"),
    "literal change": acl_nodes.decode_literal_change,
    "extended change": acl_nodes.decode_extended_change,
}
ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "broker": nodes.encode_broker,
    "topic": nodes.encode_topic,
    "state": nodes.encode_state,
    "config": nodes.encode_config,
    "config change": nodes.encode_config_change,
    "partition list": nodes.encode_partition_list,
    "producer id block": nodes.encode_producer_id_block,
    "access rules": acl_nodes.encode_rules,
    "literal change": acl_nodes.encode_change,
}


def node_seeds() -> list[Seed]:
    old_broker = {"version": 1, "host": "localhost", "port": 9092, "jmx_port": -1, "timestamp": "5"}
    no_map = {"version": 2, "endpoints": ["PLAINTEXT://a:1"], "host": "a", "port": 1, "jmx_port": -1}
    return [
        ("controller", nodes.encode_controller(3, 1700000000000)),
        ("controller epoch", nodes.encode_controller_epoch(7)),
        ("broker", nodes.encode_broker(REGISTRATION)),
        ("broker", json.dumps(old_broker).encode()),
        ("broker", json.dumps(no_map).encode()),
        ("topic", nodes.encode_topic(ASSIGNMENT)),
        ("topic", b'{"version":1,"partitions":{"0":[1,2]}}'),
        ("state", nodes.encode_state(nodes.PartitionState(1, 5, (1, 2), 7))),
        ("state", nodes.encode_state(nodes.PartitionState(1, 5, (), 7, True))),
        ("config", nodes.encode_config({"retention.ms": "1000", "cleanup.policy": "compact"})),
        ("config", b""),
        ("config change", nodes.encode_config_change("topics/orders")),
        ("features", nodes.encode_features({"transaction.version": 2})),
        ("config change", b'{"version":1,"entity_type":"topics","entity_name":"orders"}'),
        ("partition list", nodes.encode_partition_list([("orders", 0), ("orders", 1)])),
        ("log dir event", nodes.encode_log_dir_event(3)),
        ("access rules", acl_nodes.encode_rules([RULE, RULE._replace(operation=Operation.TWO_PHASE_COMMIT)])),
        ("literal change", acl_nodes.encode_change(Pattern(ResourceType.TOPIC, "orders"))),
        ("extended change", acl_nodes.encode_change(Pattern(ResourceType.GROUP, "g", PatternType.PREFIXED))),
        ("cluster id", nodes.encode_cluster_id("XoSDzFq8S1y5vX6Jkq2v6A")),
        ("producer id block", nodes.encode_producer_id_block(nodes.ProducerIdBlock(3, 0, 999))),
    ]


def read_node(kind: str, data: bytes) -> None:
    """Check that a value that was read is written in the newest form, and read again as the same."""
    value = DECODERS[kind](data)
    if kind in ENCODERS:
        try:
            written = ENCODERS[kind](value)
        except UnicodeEncodeError:
            return  # "\ud800", legal in JSON, has no UTF-8
        again = DECODERS[kind](written)
        if kind not in ("broker", "state"):
            assert again == value


# -- the command line --------------------------------------------------------------------------------------------------


def read_line(text: str) -> object:
    reader = LineReader({"parse.key": "true", "parse.headers": "true", "null.marker": "NULL"})
    return reader.parse(text.encode(errors="surrogatepass"), 1)


PARSERS: dict[str, Callable[[str], object]] = {
    "bootstrap": parse_bootstrap,
    "offset": lambda text: parse_offset(text, False),
    "datetime": parse_datetime_ms,
    "duration": parse_duration_ms,
    "scope": lambda text: parse_scope([text]),
    "plan": lambda text: read_plan(text, ["readers"]),
    "assignment": parse_assignment,
    "line": read_line,
    "settings": parse_settings,
    "time": parse_time,
    "pattern": lambda text: matching_topics(["orders"], text, False),
    "partitions": lambda text: topic_filter("orders", text)("orders", 0),
    "rules": lambda text: rules_filter(text)("orders", 0),
    "integer": lambda text: decoder("IntegerDeserializer")(text.encode(errors="surrogatepass")),
    "uuid": lambda text: decoder("UUIDDeserializer")(text.encode(errors="surrogatepass")),
}
RAISES: dict[str, tuple[type[Exception], ...]] = {
    **dict.fromkeys(PARSERS, (CommandError, click.UsageError)),
    "integer": (ValueError,),
    "uuid": (ValueError,),
}


def argument_seeds() -> list[Seed]:
    good = {
        "bootstrap": ["localhost:9092", "[::1]:9092,PLAINTEXT://b:1"],
        "offset": ["earliest", "17"],
        "datetime": ["2024-05-01T12:00:00.000", "2024-05-01T12:00:00.000+02:00", "0001-01-01T00:00:00.000Z"],
        "duration": ["P1DT2H3M4.5S", "PT1H30M", "-P5D"],
        "scope": ["orders:0,1", "returns"],
        "plan": ["orders,0,5\nreturns,1,7\n", "readers,orders,0,5\n"],
        "assignment": ["1:2,2:3", "0"],
        "line": ["h1:v1,h2:NULL\tkey\tvalue"],
        "settings": ["retention.ms=5,cleanup.policy=[compact,delete]", "a=b"],
        "time": ["latest", "-1", "1700000000000"],
        "pattern": ["orders|returns", "or(de){1,2}rs,[a-z]+"],
        "partitions": ["0,1", ""],
        "rules": ["orders:0,returns:0-2", "a:3-,b:-2", "orders"],
        "integer": ["abcd"],
        "uuid": ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6"],
    }
    return [(kind, text.encode()) for kind, texts in good.items() for text in texts]


def read_argument(kind: str, data: bytes) -> None:
    try:
        PARSERS[kind](text_of(data))
    except RAISES[kind]:
        raise
    except ValueError as error:
        # Allowed for deserializers alone.
        raise AssertionError(f"{kind}: {error!r}") from error
