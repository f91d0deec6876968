"""gregor.config.environment: the variables of container images as settings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.environment import (
    Environment,
    TopicWish,
    ignored_variables,
    key_of,
    parse_topics,
    read_environment,
)


def config_of(environ: dict[str, str], file: dict[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig({**(file or {}), **read_environment(environ, file).settings})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("KAFKA_BROKER_ID", "broker.id"),
        ("KAFKA_ZOOKEEPER_CONNECT", "zookeeper.connect"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "listener.security.protocol.map"),
        ("KAFKA_CFG_LOG_DIRS", "log.dirs"),
        ("KAFKA_FOO__BAR", "foo_bar"),
        ("KAFKA_FOO___BAR_BAZ", "foo-bar.baz"),
        ("KAFKA_FOO____BAR", "foo-.bar"),
        ("KAFKA_A__B___C_D", "a_b-c.d"),
    ],
)
def test_names(name: str, key: str) -> None:
    assert key_of(name) == key


@given(st.text(alphabet="AB_", max_size=12))
def test_names_are_those_of_apache_kafkas_image(rest: str) -> None:
    """Its wrapper replaces all underscores by dots first, then three dots, then two."""
    theirs = rest.lower().replace("_", ".").replace("...", "-").replace("..", "_")
    assert key_of(f"KAFKA_{rest}") == theirs or rest.startswith("CFG_")


def test_the_variables_of_a_wurstmeister_compose_file() -> None:
    found = read_environment(
        {
            "KAFKA_BROKER_ID": "2",
            "KAFKA_ZOOKEEPER_CONNECT": "zoo1:2181,zoo2:2181/kafka",
            "KAFKA_ADVERTISED_HOST_NAME": "192.0.2.7",
            "KAFKA_ADVERTISED_PORT": "9094",
            "KAFKA_CREATE_TOPICS": "orders:6:3,state:1:1:compact",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "PATH": "/bin",
        }
    )
    config = BrokerConfig(found.settings)
    assert config.broker_id == 2
    assert config["zookeeper.connect"] == "zoo1:2181,zoo2:2181/kafka"
    assert [one.text for one in config.listeners] == ["PLAINTEXT://0.0.0.0:9092"]
    assert [one.text for one in config.advertised_listeners] == ["PLAINTEXT://192.0.2.7:9094"]
    assert found.topics == [TopicWish("orders", 6, 3, None), TopicWish("state", 1, 1, "compact")]
    assert "KAFKA_BROKER_ID sets broker.id=2" in found.notes
    assert any("KAFKA_HEAP_OPTS" in line and "without effect" in line for line in found.notes)
    assert found.warnings == []


def test_several_listeners() -> None:
    config = config_of(
        {
            "KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka1:9093, OUTSIDE://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        }
    )
    assert [one.text for one in config.listeners] == ["INSIDE://0.0.0.0:9093", "OUTSIDE://0.0.0.0:9092"]
    assert [one.text for one in config.advertised_listeners] == ["INSIDE://kafka1:9093", "OUTSIDE://localhost:9092"]
    assert config.inter_broker_listener_name == "INSIDE"


@pytest.mark.parametrize(
    ("environ", "file", "listeners"),
    [
        ({}, {}, "PLAINTEXT://localhost:9092"),
        ({"KAFKA_NUM_PARTITIONS": "3"}, {}, "PLAINTEXT://localhost:9092"),
        ({"KAFKA_PORT": "9095"}, {}, "PLAINTEXT://0.0.0.0:9095"),
        ({"KAFKA_PORT": "9095"}, {"listeners": "PLAINTEXT://:9092"}, "PLAINTEXT://:9092"),
        ({"KAFKA_ADVERTISED_PORT": "9095"}, {"host.name": "127.0.0.1"}, "PLAINTEXT://127.0.0.1:9092"),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:1"}, {"listeners": "PLAINTEXT://:2"}, "PLAINTEXT://:1"),
        ({}, {"advertised.listeners": "PLAINTEXT://kafka1:9092"}, "PLAINTEXT://localhost:9092"),
    ],
)
def test_advertised_address_makes_the_broker_listen_on_every_network(
    environ: dict[str, str], file: dict[str, str], listeners: str
) -> None:
    assert ",".join(one.text for one in config_of(environ, file).listeners) == listeners


def test_a_forwarded_port_without_a_host_leaves_the_host_to_the_connection() -> None:
    (advertised,) = config_of({"KAFKA_ADVERTISED_PORT": "32768"}).advertised_listeners
    assert (advertised.host, advertised.port) == ("", 32768)


def test_the_command_line_decides_whether_listeners_follow() -> None:
    environ = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka1:9092"}
    found = read_environment(environ, {}, {"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert "listeners" not in found.settings


COMPOSE_FILES = {
    "Confluent": {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL": "http://schema-registry:8081",
        "KAFKA_JMX_PORT": "9101",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
    },
    "Apache": {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    },
    "Bitnami": {
        "KAFKA_CFG_NODE_ID": "0",
        "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
        "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
        "ALLOW_PLAINTEXT_LISTENER": "yes",
    },
}


@pytest.mark.parametrize("image", COMPOSE_FILES)
def test_variables_of_other_images(image: str) -> None:
    found = read_environment(COMPOSE_FILES[image])
    config = BrokerConfig(found.settings)
    assert found.warnings == config.warnings == []
    assert config.broker_id == (0 if image == "Bitnami" else 1)
    assert {one.port for one in config.listeners} == ({29092, 9092} if image == "Confluent" else {9092})


def test_bitnamis_form_has_precedence_with_a_warning() -> None:
    found = read_environment({"KAFKA_CFG_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITIONS": "4"})
    assert found.settings == {"num.partitions": "3"}
    assert found.warnings == ["KAFKA_CFG_NUM_PARTITIONS overrides KAFKA_NUM_PARTITIONS, which has another value"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_OPTS", "-Dx"),
        ("KAFKA_JMX_PORT", "9999"),
        ("KAFKA_LOG4J_LOGGERS", "kafka=DEBUG"),
        ("KAFKA_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_1_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_HEADLESS_SERVICE_PORT_CLIENT", "9092"),
        ("KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("KAFKA_ENABLE_KRAFT", "yes"),
        ("KAFKA_LOG", "/tmp"),
        ("KAFKA_EXTRA_FLAGS", "-name kafka"),
    ],
)
def test_variables_of_others_are_named_and_set_nothing(name: str, value: str) -> None:
    found = read_environment({name: value})
    assert found.settings == {}
    assert found.notes == [f"variables of images, JVMs and service links, without effect: {name}"]
    assert ignored_variables({name: value}) == []


def test_unknown_variable_is_ignored_with_the_nearest_key() -> None:
    found = read_environment({"KAFKA_NUM_PARTITION": "3"})
    assert found.settings == {}
    assert found.warnings == [
        "KAFKA_NUM_PARTITION is ignored: there is no setting num.partition; did you mean num.partitions?"
    ]


@pytest.mark.parametrize("name", ["KAFKA_CLIENT_PASSWORDS", "KAFKA_CLIENT_PASSWORDS_FILE", "KAFKA_SSL_KEY_CREDENTIALS"])
def test_protection_that_is_not_there_is_a_warning(name: str) -> None:
    found = read_environment({name: "hunter2"})
    assert found.settings == {}
    assert [line.partition(" ")[0] for line in found.warnings] == [name]
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "name",
    [
        "KAFKA_LISTENER_NAME_CLIENT_PLAIN_SASL_JAAS_CONFIG",
        "KAFKA_SASL_JAAS_CONFIG",
        "KAFKA_LISTENER_NAME_CLIENT_SSL_KEYSTORE_KEY",
        "KAFKA_DELEGATION_TOKEN_SECRET_KEY",
    ],
)
def test_no_secret_of_any_key_is_shown(name: str) -> None:
    found = read_environment({name: "hunter2"})
    assert "hunter2" not in str((found.notes, found.warnings))


def test_advertised_listeners_without_an_address_are_the_mistake() -> None:
    with pytest.raises(ConfigError, match="^advertised.listeners="):
        config_of({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://"})


def test_commands_are_not_run() -> None:
    found = read_environment({"BROKER_ID_COMMAND": "hostname | cut -c6", "RACK_COMMAND": ""})
    assert found.settings == {}
    assert found.warnings == [
        "BROKER_ID_COMMAND is ignored: gregor runs no commands of the environment; set KAFKA_BROKER_ID to its result"
    ]


def test_empty_and_secret_values() -> None:
    found = read_environment({"KAFKA_BROKER_RACK": "", "KAFKA_SSL_KEYSTORE_PASSWORD": "hunter2"})
    assert found.settings == {"ssl.keystore.password": "hunter2"}
    assert found.notes == ["KAFKA_SSL_KEYSTORE_PASSWORD sets ssl.keystore.password=(hidden)"]
    assert found.warnings == ["KAFKA_BROKER_RACK is empty and ignored"]


@pytest.mark.parametrize(
    "name",
    [
        "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
        "KAFKA_LISTENER_NAME_OUTSIDE_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
        "KAFKA_CFG_ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM",
    ],
)
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_value_switches_the_check_of_host_names_off(name: str, text: str) -> None:
    """As with Apache Kafka's image, which writes every variable to the file."""
    found = read_environment({name: text})
    assert found.settings == {key_of(name): ""} and found.warnings == []
    assert found.notes == [f"{name} sets {key_of(name)}="]
    assert BrokerConfig(found.settings)["ssl.endpoint.identification.algorithm"] == (
        "" if name == "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM" else "https"
    )
    assert ignored_variables({name: text}) == [name]


def test_service_link_in_place_of_the_port_is_warned_about() -> None:
    link = {"KAFKA_PORT": "tcp://10.0.0.1:9092"}
    (warning,) = read_environment(link).warnings
    assert warning.startswith("KAFKA_PORT is the link of a service") and "set KAFKA_LISTENERS=" in warning
    assert read_environment({**link, "KAFKA_LISTENERS": "PLAINTEXT://:9092"}).warnings == []
    assert read_environment({**link, "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092"}).warnings == []


def test_ignored_variables() -> None:
    environ = {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_URL": "x",
        "KAFKA_HOME": "/k",
        "KAFKA_CREATE_TOPICS": "a:1:1",
        "HOME": "/",
    }
    assert ignored_variables(environ) == ["KAFKA_BROKER_ID", "KAFKA_CREATE_TOPICS"]


@pytest.mark.parametrize(
    ("text", "separator", "wishes"),
    [
        ("", ",", []),
        (" a , b:2 ", ",", [TopicWish("a", -1, -1, None), TopicWish("b", 2, -1, None)]),
        ("a:1:1:compact,delete\nb:1:1", "\\n", [TopicWish("a", 1, 1, "compact,delete"), TopicWish("b", 1, 1, None)]),
        ("a:1:1:compact,delete\nb:1:1", "$'\\n'", [TopicWish("a", 1, 1, "compact,delete"), TopicWish("b", 1, 1, None)]),
    ],
)
def test_topics(text: str, separator: str, wishes: list[TopicWish]) -> None:
    assert parse_topics(text, separator) == wishes


@pytest.mark.parametrize("entry", [":1:1", "a:x:1", "a:1:0", "a:1:1:compact:x", "a:-1:1", "a:99999:1"])
def test_bad_topics_name_the_entry(entry: str) -> None:
    with pytest.raises(ConfigError, match="must be name:partitions:replicas"):
        read_environment({"KAFKA_CREATE_TOPICS": f"good:1:1,{entry}"})


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.from_regex(r"KAFKA_[A-Z_0-9]{0,20}", fullmatch=True).filter(lambda name: "TOPICS" not in name),
        st.text(),
        max_size=3,
    )
)
def test_any_environment_is_read(environ: dict[str, str]) -> None:
    assert isinstance(read_environment(environ), Environment)
