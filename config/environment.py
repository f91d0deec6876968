"""Settings in environment variables, under the names that users of Kafka's container images know.

`KAFKA_LOG_DIRS` is `log.dirs`: what follows the prefix in lower case, `_` for a dot, `__` for an underscore, `___` for
a dash (Apache's and Confluent's images; wurstmeister's is the same without the latter two). `KAFKA_CFG_LOG_DIRS`
(Bitnami's) is the same key and wins. Which variables speak to an image's scripts or to a JVM, and so to nobody here, is
in the tables below.
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
# Commands that wurstmeister's image runs at its start, and what they would have been asked for.
_COMMANDS = {
    "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
    "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "PORT_COMMAND": "KAFKA_ADVERTISED_LISTENERS",
    "RACK_COMMAND": "KAFKA_BROKER_RACK",
    "CUSTOM_INIT_SCRIPT": "what it prepares before the start",
}
# Users, passwords and certificates that scripts of Bitnami's, Confluent's and Apache's images make settings of: whoever
# gives one expects a door that is not there.
_FOR_PROTECTION = re.compile(
    r"KAFKA_((CLIENT_(USERS?|PASSWORDS?)|(INTER_BROKER|CONTROLLER|ZOOKEEPER|CLIENT)_(USER|PASSWORD)|TLS_\w+"
    r"|ZOOKEEPER_TLS_\w+|CERTIFICATE_PASSWORD)(_FILE)?|SSL_(KEY|KEYSTORE|TRUSTSTORE)_(FILENAME|CREDENTIALS))$"
)
_SECRET = re.compile("password|secret|jaas|credential|token|truststore.certificates|keystore.(key|certificate.chain)")
# What Kubernetes and old container links put into every process near a service called kafka or kafka-<something>.
_SERVICE_LINK = re.compile(r"KAFKA_((\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP)\w*)|(\d+_)?NAME)$")
_ADDRESS_OF_A_LINK = ("tcp://", "udp://")
_RUNS_OF_UNDERSCORES = {1: ".", 2: "_", 3: "-"}


class TopicWish(NamedTuple):
    """An entry of KAFKA_CREATE_TOPICS; -1 stands for the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    cleanup_policy: str | None


class Environment(NamedTuple):
    """What the environment says; `notes` and `warnings` are lines for the log, without the values of secrets."""

    settings: dict[str, str]
    topics: list[TopicWish]
    notes: list[str]
    warnings: list[str]


def read_environment(
    environ: Mapping[str, str], file: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Environment:
    """Take the KAFKA_* variables. `file` and `overrides`: the settings below and above them, on which depends whether
    the listeners follow from the advertised ones. Raises ConfigError for a bad KAFKA_CREATE_TOPICS.
    """
    found = Environment({}, [], [], [])
    without_effect = []
    for name in sorted(environ, key=lambda name: (name.startswith(_BITNAMI_PREFIX), name)):
        text = environ[name]
        if not name.startswith(PREFIX) or name in (_TOPICS, _TOPICS_SEPARATOR):
            continue
        if _FOR_PROTECTION.match(name):
            found.warnings.append(f"{name} has no effect: gregor does not protect what it stands for")
        elif is_for_others(name, text):
            without_effect.append(name)
        elif not text.strip():
            found.notes.append(f"{name} is empty and ignored")
        else:
            _take(name, text.strip(), found)
    for name, instead in _COMMANDS.items():
        if environ.get(name):
            found.warnings.append(f"{name} is not run: no command of the environment is; give {instead} itself")
    if without_effect:
        found.notes.append(f"variables of images, JVMs and service links, without effect: {', '.join(without_effect)}")
    found.topics.extend(parse_topics(environ.get(_TOPICS, ""), environ.get(_TOPICS_SEPARATOR) or ","))
    linked = environ.get(_PORT, "").startswith(_ADDRESS_OF_A_LINK)
    _derive_listeners({**(file or {}), **found.settings, **(overrides or {})}, found, replaced=linked)
    return found


def is_for_others(name: str, text: str) -> bool:
    """Whether a KAFKA_* variable speaks to somebody else than the broker."""
    return (
        name in _FOR_IMAGES
        or _FAMILIES_FOR_IMAGES.match(name) is not None
        or _SERVICE_LINK.match(name) is not None
        or (name.endswith("_PORT") and text.startswith(_ADDRESS_OF_A_LINK))
    )


def variables_left_aside(environ: Mapping[str, str]) -> list[str]:
    """The variables that would set something if the environment were asked."""
    return sorted(
        name
        for name, text in environ.items()
        if name.startswith(PREFIX)
        and (name == _TOPICS or (text.strip() and not is_for_others(name, text) and _is_known(key_of(name))))
    )


def key_of(name: str) -> str:
    """The setting that a variable names, whether there is one or not."""
    rest = name.removeprefix(_BITNAMI_PREFIX if name.startswith(_BITNAMI_PREFIX) else PREFIX)
    return re.sub("_{1,3}", lambda run: _RUNS_OF_UNDERSCORES[len(run[0])], rest.lower())


def parse_topics(text: str, separator: str = ",") -> list[TopicWish]:
    """`name[:partitions[:replicas[:cleanup.policy]]]` of each; ConfigError. A separator of a line break leaves room for
    commas in the policies, as in `name:1:1:compact,delete`."""
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


def _take(name: str, text: str, found: Environment) -> None:
    key = key_of(name)
    if not _is_known(key):
        hint = nearest_key_hint(key, known_names())
        found.warnings.append(f"{name} is not taken: there is no setting {key}{hint}")
        return
    before = found.settings.get(key)
    if before is not None and before != text:
        found.warnings.append(f"{name} wins over {PREFIX}{name.removeprefix(_BITNAMI_PREFIX)}, which says otherwise")
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
    """`replaced`: a service link stands where the image had given the port.

    As with the images: who is promised an address in the environment, or named a port, listens on every network.
    Without a word about addresses the broker stays where it is without an environment, on the loopback."""
    if "listeners" in given or "host.name" in given:
        return
    port = given.get("port")
    names = {"advertised.listeners", "advertised.host.name", "advertised.port", "port"}.intersection(found.settings)
    if not names:
        if replaced:
            found.warnings.append(
                f"{_PORT} is the link of a service of that name and no port, and so the broker listens on the loopback"
                " only; give KAFKA_LISTENERS=PLAINTEXT://:9092 to be reached by others"
            )
        return
    if "advertised.listeners" in given:
        parts = (part.strip().partition("://") for part in given["advertised.listeners"].split(","))
        listeners = ",".join(f"{name}://0.0.0.0:{address.rpartition(':')[2]}" for name, _, address in parts if address)
    else:
        listeners = f"PLAINTEXT://0.0.0.0:{port or 9092}"
    if not listeners:
        return  # there is no address among them, which is said of advertised.listeners
    found.settings["listeners"] = listeners
    found.notes.append(f"{', '.join(sorted(names))} given without listeners: listeners={listeners}")
    if "advertised.listeners" not in given and not {"advertised.host.name", "advertised.port"}.isdisjoint(given):
        host = given.get("advertised.host.name", "")
        advertised = f"PLAINTEXT://{host}:{given.get('advertised.port') or port or 9092}"
        found.settings["advertised.listeners"] = advertised
