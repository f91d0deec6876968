"""The table of broker settings against Apache Kafka 4.3.1's own."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from gregor.config.definitions import LONG_MAX, RETIRED, ConfigDef
from gregor.config.tables.broker_keys import BROKER_KEYS, BROKER_SYNONYMS, broker_synonyms
from gregor.config.tables.group_keys import GROUP_KEYS, limit_keys
from gregor.config.tables.known_keys import NO_EFFECT_KEYS
from gregor.config.tables.no_effect_keys import keys_without_effect
from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.config.validators import Range
from tests.config.kafka_facts import FILE, default_text, read_facts, sorted_choices, validator_text
from tests.support.kafka import kafka_jars
from tests.support.processes import ROOT

FACTS = read_facts("broker")

# On purpose different from Apache Kafka 4.3.1; broker_keys.py states the reasons.
OTHER_DEFAULTS = {
    "listeners": "[PLAINTEXT://localhost:9092]",
    "log.dir": "[./gregor-data]",
    "node.id": "-1",
}
# Settings of 3.9.1's ZooKeeper mode that 4.x has dropped, with its defaults.
ZOOKEEPER_MODE = {
    "broker.id.generation.enable": True,
    "control.plane.listener.name": None,
    "controlled.shutdown.max.retries": 3,
    "controlled.shutdown.retry.backoff.ms": 5000,
    "leader.imbalance.per.broker.percentage": 10,
    "offsets.commit.required.acks": -1,
    "quota.consumer.default": LONG_MAX,
    "quota.producer.default": LONG_MAX,
    "reserved.broker.max.id": 1000,
    "password.encoder.cipher.algorithm": "AES/CBC/PKCS5Padding",
    "password.encoder.iterations": 4096,
    "password.encoder.key.length": 128,
    "password.encoder.keyfactory.algorithm": None,
    "password.encoder.old.secret": None,
    "password.encoder.secret": None,
    "zookeeper.connect": "",
    "zookeeper.connection.timeout.ms": None,
    "zookeeper.max.in.flight.requests": 10,
    "zookeeper.session.timeout.ms": 18000,
    "zookeeper.set.acl": False,
    "zookeeper.ssl.cipher.suites": [],
    "zookeeper.ssl.client.enable": False,
    "zookeeper.ssl.crl.enable": False,
    "zookeeper.ssl.enabled.protocols": [],
    "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
    "zookeeper.ssl.keystore.location": None,
    "zookeeper.ssl.keystore.password": None,
    "zookeeper.ssl.keystore.type": None,
    "zookeeper.ssl.ocsp.enable": False,
    "zookeeper.ssl.protocol": "TLSv1.2",
    "zookeeper.ssl.truststore.location": None,
    "zookeeper.ssl.truststore.password": None,
    "zookeeper.ssl.truststore.type": None,
}

# Settings that Apache Kafka does not have.
OF_AUTHORIZERS = {"super.users": "", "allow.everyone.if.no.acl.found": False}
"""Apache Kafka's authorizers read these themselves."""
OURS = {
    "gregor.log.format": "text",
    "gregor.metrics.listener": "",
    "gregor.metrics.password.file": "",
    "gregor.allow.unprotected": False,
    "gregor.rebalance.history.enable": True,
    "gregor.session.watcher": True,
    "gregor.slow.request.log.ms": -1,
    "gregor.zookeeper.jaas.config": None,
}

ALL_KEYS = {**BROKER_KEYS, **keys_without_effect()}
# Of brokers, too, but in a table of their own; the tool that moves partitions sets them.
THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
SHARED = [definition for key, definition in ALL_KEYS.items() if key in FACTS]
# The text of these validators does not show their rule, or the rule is stricter than our tables; no code uses them.
OTHER_VALIDATORS = ("non-empty list", "non-null string", "non-empty string", "(case insensitive)")
# Apache Kafka loads the classes of assignors when it starts, and refuses other names then.
CHECKED_LATER = ("group.consumer.assignors",)


@pytest.mark.parametrize("definition", SHARED, ids=lambda definition: definition.key)
def test_type_default_range_and_mode(definition: ConfigDef) -> None:
    fact = FACTS[definition.key]
    assert definition.type == fact.type
    assert definition.dynamic == fact.mode
    default = OTHER_DEFAULTS.get(definition.key, fact.default).removeprefix("class ")
    assert default_text(definition) == ("<NULL>" if default == "<NONE>" else default)
    if definition.key == "node.id":
        assert isinstance(definition.validator, Range)
        assert (fact.validator, definition.validator.also) == ("[0,...]", (-1,))
    elif not fact.validator.startswith(OTHER_VALIDATORS) and definition.key not in CHECKED_LATER:
        assert validator_text(definition) == sorted_choices(fact.validator)


def test_the_settings_of_zookeeper_mode() -> None:
    others = {key: definition.default for key, definition in ALL_KEYS.items() if key not in FACTS}
    assert others == {**ZOOKEEPER_MODE, **OF_AUTHORIZERS, **OURS, **dict.fromkeys(THROTTLES, LONG_MAX)}
    assert {key for key, definition in ALL_KEYS.items() if definition.visibility == RETIRED} == set(ZOOKEEPER_MODE)


def test_every_setting_of_kafka_is_known() -> None:
    assert sorted(set(FACTS) - set(ALL_KEYS)) == []


def test_each_setting_is_in_one_table() -> None:
    assert sorted(set(BROKER_KEYS) & set(keys_without_effect())) == []
    assert sorted(set(ALL_KEYS) & NO_EFFECT_KEYS) == []
    assert all(definition.no_effect for definition in keys_without_effect().values())


@pytest.mark.parametrize("definition", ALL_KEYS.values(), ids=lambda definition: definition.key)
def test_defaults_are_legal_and_explained(definition: ConfigDef) -> None:
    text = definition.format(definition.default)
    assert text is None or definition.parse(text) == definition.default
    assert definition.help.endswith(".")
    assert not definition.no_effect.endswith(".")


def read_by_the_broker() -> str:
    """Return the source of everything that may use a setting."""
    folders = ("broker", "coordinator", "replication", "storage")
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "cli" not in path.relative_to(ROOT).parts
    ]
    files += [ROOT / "config" / name for name in ("addresses.py", "broker.py", "protection.py", "topic.py")]
    files += (ROOT / "config" / "security").glob("*.py")
    return "\n".join(path.read_text() for path in files)


def test_setting_without_effect_says_so_in_its_help() -> None:
    """The help of a setting that no code reads states this (`no_effect`); the help of any other setting does not."""
    source = read_by_the_broker()
    by_topics = {key for definition in TOPIC_KEYS.values() for key in definition.broker_synonyms}
    by_groups = {limit for key, row in GROUP_KEYS.items() if not row.no_effect for limit in limit_keys(key)}

    def acts(key: str) -> bool:
        derived = key in by_topics and not BROKER_KEYS[key].no_effect
        return f'"{key}"' in source or f'{key}"' in source or derived or key in by_groups

    assert [key for key, definition in BROKER_KEYS.items() if not acts(key) and not definition.no_effect] == []
    assert [key for key, definition in ALL_KEYS.items() if definition.no_effect and f'["{key}"]' in source] == []


def test_synonyms() -> None:
    assert broker_synonyms("log.retention.minutes") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert broker_synonyms("num.partitions") == ("num.partitions",)
    for group in BROKER_SYNONYMS:
        assert BROKER_KEYS[group[-1]].default is not None
        assert all(BROKER_KEYS[key].default is None for key in group[:-1])


@pytest.mark.jvm
@pytest.mark.slow
def test_the_facts_are_those_of_the_jars() -> None:
    done = subprocess.run(
        ["java", "-cp", f"{kafka_jars()}/*", str(pathlib.Path(__file__).with_name("DumpSettings.java"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == FILE.read_text()
