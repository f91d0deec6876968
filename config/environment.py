"""Settings in environment variables, by the names that Kafka's container images use.

`KAFKA_LOG_DIRS` is `log.dirs`: the rest of the name in lower case, with a dot for `_`, an underscore for `__` and a
dash for `___` (Apache's and Confluent's images; wurstmeister's image has only the dot). `KAFKA_CFG_LOG_DIRS` (Bitnami's
image) is the same key and has precedence. The tables below list the variables of the images' scripts and of JVMs,
which have no effect here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gregor.config.addresses import OLD_ADDRESS_KEYS
from gregor.config.broker import broker_definition, known_names, nearest_key_hint
from gregor.config.definitions import ConfigError
from gregor.config.tables.known_keys import NO_EFFECT_KEYS, NO_EFFECT_PREFIXES

PREFIX = "KAFKA_"
_BITNAMI_PREFIX = "KAFKA_CFG_"
_PORT = "KAFKA_PORT"
_TOPICS = "KAFKA_CREATE_TOPICS"
_TOPICS_SEPARATOR = "KAFKA_CREATE_TOPICS_SEPARATOR"

# Read by the images' scripts or by a JVM.
_NAMES_FOR_IMAGES = """
VERSION HOME HEAP_OPTS OPTS GC_LOG_OPTS JVM_PERFORMANCE_OPTS DEBUG MODE LOG EXTRA_FLAGS TOOLS_LOG4J_LOGLEVEL BASE_DIR
CONF_DIR LIB_DIR MOUNTED_CONF_DIR DATA_DIR VOLUME_DIR CLIENT_LISTENER_NAME INITSCRIPTS_DIR DAEMON_USER DAEMON_GROUP
ENABLE_KRAFT KRAFT_CLUSTER_ID SKIP_KRAFT_STORAGE_INIT KRAFT_BOOTSTRAP_SCRAM_USERS CLUSTER_ID PROTOCOL_NAME
ADVERTISED_PROTOCOL_NAME ZOOKEEPER_PROTOCOL ZOOKEEPER_BOOTSTRAP_SCRAM_USERS
"""
_FOR_IMAGES = frozenset(PREFIX + name for name in _NAMES_FOR_IMAGES.split())
_FAMILIES_FOR_IMAGES = re.compile(r"KAFKA_(LOG4J|JMX|CONFLUENT)_")
# Commands that wurstmeister's image runs at its start, and the remedy for each.
_COMMANDS = {
    "BROKER_ID_COMMAND": "set KAFKA_BROKER_ID to its result",
    "HOSTNAME_COMMAND": "set KAFKA_ADVERTISED_LISTENERS with its result",
    "PORT_COMMAND": "set KAFKA_ADVERTISED_LISTENERS with its result",
    "RACK_COMMAND": "set KAFKA_BROKER_RACK to its result",
    "CUSTOM_INIT_SCRIPT": "run it before the broker starts",
}
# Users, passwords and certificates that scripts of Bitnami's, Confluent's and Apache's images turn into settings. They
# are warned about, because a user who sets one expects a protection, and gregor runs no such script.
_FOR_PROTECTION = re.compile(
    r"KAFKA_((CLIENT_(USERS?|PASSWORDS?)|(INTER_BROKER|CONTROLLER|ZOOKEEPER|CLIENT)_(USER|PASSWORD)|TLS_\w+"
    r"|ZOOKEEPER_TLS_\w+|CERTIFICATE_PASSWORD)(_FILE)?|SSL_(KEY|KEYSTORE|TRUSTSTORE)_(FILENAME|CREDENTIALS))$"
)
_SECRET = re.compile("password|secret|jaas|credential|token|truststore.certificates|keystore.(key|certificate.chain)")
# Variables that Kubernetes and old container links set in every process near a service kafka or kafka-<something>.
_SERVICE_LINK = re.compile(r"KAFKA_((\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP)\w*)|(\d+_)?NAME)$")
# The settings that an empty value switches off: they check the names of hosts. Other keys have no use for one.
_EMPTY_HAS_MEANING = ".endpoint.identification.algorithm"
_ADDRESS_OF_A_LINK = ("tcp://", "udp://")
_RUNS_OF_UNDERSCORES = {1: ".", 2: "_", 3: "-"}


class TopicWish(NamedTuple):
    """An entry of KAFKA_CREATE_TOPICS; -1 stands for the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    cleanup_policy: str | None


class Environment(NamedTuple):
    """The settings and topics of the environment; `notes` and `warnings` are lines for the log, without secrets."""

    settings: dict[str, str]
    topics: list[TopicWish]
    notes: list[str]
    warnings: list[str]


def read_environment(
    environ: Mapping[str, str], file: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Environment:
    """Convert the KAFKA_* variables to settings; raise ConfigError for an illegal KAFKA_CREATE_TOPICS.

    `file` and `overrides` are the settings with lower and higher precedence: the listeners are derived from the
    advertised ones only if none of the three names any.
    """
    found = Environment({}, [], [], [])
    without_effect = []
    for name in sorted(environ, key=lambda name: (name.startswith(_BITNAMI_PREFIX), name)):
        text = environ[name]
        if not name.startswith(PREFIX) or name in (_TOPICS, _TOPICS_SEPARATOR):
            continue
        if _FOR_PROTECTION.match(name):
            found.warnings.append(
                f"{name} has no effect, so it does not protect the broker: it belongs to an image's scripts; set the"
                " settings themselves, such as KAFKA_SSL_KEYSTORE_LOCATION, or KAFKA_SASL_ENABLED_MECHANISMS"
            )
        elif is_without_effect(name, text):
            without_effect.append(name)
        elif not _is_set(name, text):
            found.warnings.append(f"{name} is empty and ignored")
        else:
            _apply(name, text.strip(), found)
    for name, remedy in _COMMANDS.items():
        if environ.get(name):
            found.warnings.append(f"{name} is ignored: gregor runs no commands of the environment; {remedy}")
    if without_effect:
        found.notes.append(f"variables of images, JVMs and service links, without effect: {', '.join(without_effect)}")
    found.topics.extend(parse_topics(environ.get(_TOPICS, ""), environ.get(_TOPICS_SEPARATOR) or ","))
    linked = environ.get(_PORT, "").startswith(_ADDRESS_OF_A_LINK)
    _derive_listeners({**(file or {}), **found.settings, **(overrides or {})}, found, replaced=linked)
    return found


def is_without_effect(name: str, text: str) -> bool:
    """Return whether a KAFKA_* variable belongs to an image's scripts, a JVM or a service link."""
    return (
        name in _FOR_IMAGES
        or _FAMILIES_FOR_IMAGES.match(name) is not None
        or _SERVICE_LINK.match(name) is not None
        or (name.endswith("_PORT") and text.startswith(_ADDRESS_OF_A_LINK))
    )


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that would have an effect if the broker read the environment."""
    return sorted(
        name
        for name, text in environ.items()
        if name.startswith(PREFIX)
        and (name == _TOPICS or (_is_set(name, text) and not is_without_effect(name, text) and _is_known(key_of(name))))
    )


def _is_set(name: str, text: str) -> bool:
    return bool(text.strip()) or key_of(name).endswith(_EMPTY_HAS_MEANING)


def key_of(name: str) -> str:
    """Return the key that the name of a variable stands for, whether such a setting exists or not."""
    rest = name.removeprefix(_BITNAMI_PREFIX if name.startswith(_BITNAMI_PREFIX) else PREFIX)
    return re.sub("_{1,3}", lambda run: _RUNS_OF_UNDERSCORES[len(run[0])], rest.lower())


def parse_topics(text: str, separator: str = ",") -> list[TopicWish]:
    """Parse `name[:partitions[:replicas[:cleanup.policy]]]` of each topic; raise ConfigError for an illegal one.

    A line break as separator allows commas in the policies, as in `name:1:1:compact,delete`.
    """
    separator = separator.replace("\\n", "\n").replace("$'", "").strip("'") or ","
    wishes = []
    for entry in filter(None, (part.strip() for part in text.split(separator))):
        name, *rest = (part.strip() for part in entry.split(":"))
        numbers = [*rest[:2], "", ""][:2]
        if not name or len(rest) > 3 or any(number and not _is_count(number) for number in numbers):
            raise ConfigError(_TOPICS, entry, "must be name:partitions:replicas[:cleanup.policy]")
        partitions, factor = (int(number) if number else -1 for number in numbers)
        wishes.append(TopicWish(name, partitions, factor, rest[2] if len(rest) == 3 and rest[2] else None))
    return wishes


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**15


def _apply(name: str, text: str, found: Environment) -> None:
    key = key_of(name)
    if not _is_known(key):
        hint = nearest_key_hint(key, known_names())
        found.warnings.append(f"{name} is ignored: there is no setting {key}{hint}")
        return
    before = found.settings.get(key)
    if before is not None and before != text:
        found.warnings.append(f"{name} overrides {PREFIX}{name.removeprefix(_BITNAMI_PREFIX)}, which has another value")
    found.settings[key] = text
    definition = broker_definition(key)
    secret = (definition is not None and definition.sensitive) or _SECRET.search(key) is not None
    found.notes.append(f"{name} sets {key}={'(hidden)' if secret else text}")


def _is_known(key: str) -> bool:
    return (
        broker_definition(key) is not None
        or key in OLD_ADDRESS_KEYS
        or key in NO_EFFECT_KEYS
        or key.startswith(NO_EFFECT_PREFIXES)
    )


def _derive_listeners(given: Mapping[str, str], found: Environment, *, replaced: bool) -> None:
    """Derive the listeners from the advertised listeners or the port, unless listeners are set.

    As with the images, a broker with an advertised address or a port in the environment listens on every network. One
    without either listens on the loopback addresses, as without an environment. `replaced`: KAFKA_PORT is a service
    link, in place of the port that the image had set.
    """
    if "listeners" in given or "host.name" in given:
        return
    port = given.get("port")
    names = {"advertised.listeners", "advertised.host.name", "advertised.port", "port"}.intersection(found.settings)
    if not names:
        if replaced:
            found.warnings.append(
                f"{_PORT} is the link of a service named kafka, not a port, so the broker listens on the loopback "
                "addresses only; set KAFKA_LISTENERS=PLAINTEXT://:9092 to accept connections of other hosts"
            )
        return
    if "advertised.listeners" in given:
        parts = (part.strip().partition("://") for part in given["advertised.listeners"].split(","))
        listeners = ",".join(f"{name}://0.0.0.0:{address.rpartition(':')[2]}" for name, _, address in parts if address)
    else:
        listeners = f"PLAINTEXT://0.0.0.0:{port or 9092}"
    if not listeners:
        return  # advertised.listeners names no address; its own check reports that
    found.settings["listeners"] = listeners
    found.notes.append(f"{', '.join(sorted(names))} set without listeners: listeners={listeners}")
    if "advertised.listeners" not in given and not {"advertised.host.name", "advertised.port"}.isdisjoint(given):
        host = given.get("advertised.host.name", "")
        advertised = f"PLAINTEXT://{host}:{given.get('advertised.port') or port or 9092}"
        found.settings["advertised.listeners"] = advertised
