"""The table of broker settings against Apache Kafka 4.3.1's own."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from config.broker_keys import BROKER_KEYS, BROKER_SYNONYMS, broker_synonyms
from config.definitions import ConfigDef
from config.known_keys import NO_EFFECT_KEYS
from tests.config.kafka_facts import FILE, default_text, read_facts, sorted_choices, validator_text
from tests.support.kafka import kafka_jars

FACTS = read_facts("broker")

# On purpose different from Apache Kafka 4.3.1; said so in broker_keys.py.
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
    "reserved.broker.max.id": 1000,
    "zookeeper.connect": "",
    "zookeeper.connection.timeout.ms": None,
    "zookeeper.max.in.flight.requests": 10,
    "zookeeper.session.timeout.ms": 18000,
    "zookeeper.set.acl": False,
}

SHARED = [definition for key, definition in BROKER_KEYS.items() if key in FACTS]


@pytest.mark.parametrize("definition", SHARED, ids=lambda definition: definition.key)
def test_type_default_range_and_mode(definition: ConfigDef) -> None:
    fact = FACTS[definition.key]
    assert definition.type == fact.type
    assert definition.dynamic == fact.mode
    assert default_text(definition) == OTHER_DEFAULTS.get(definition.key, fact.default)
    if definition.key == "node.id":
        assert (fact.validator, definition.also) == ("[0,...]", (-1,))
    else:
        assert validator_text(definition) == sorted_choices(fact.validator)


def test_the_settings_of_zookeeper_mode() -> None:
    assert {key: definition.default for key, definition in BROKER_KEYS.items() if key not in FACTS} == ZOOKEEPER_MODE


def test_every_setting_of_kafka_is_known() -> None:
    assert sorted(set(FACTS) - set(BROKER_KEYS) - NO_EFFECT_KEYS) == []


def test_a_setting_acts_or_does_not() -> None:
    assert sorted(set(BROKER_KEYS) & NO_EFFECT_KEYS) == []


@pytest.mark.parametrize("definition", BROKER_KEYS.values(), ids=lambda definition: definition.key)
def test_defaults_are_legal_and_explained(definition: ConfigDef) -> None:
    text = definition.format(definition.default)
    assert text is None or definition.parse(text) == definition.default
    assert definition.help.endswith(".")


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
def test_the_facts_are_what_the_jars_say() -> None:
    done = subprocess.run(
        ["java", "-cp", f"{kafka_jars()}/*", str(pathlib.Path(__file__).with_name("DumpSettings.java"))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == FILE.read_text()
