"""The table of topic settings against Apache Kafka 4.3.1's own."""

from __future__ import annotations

import pytest

from gregor.config.definitions import INTERNAL, ConfigDef, ConfigError
from gregor.config.tables.broker_keys import BROKER_KEYS
from gregor.config.tables.known_keys import NO_EFFECT_KEYS
from gregor.config.tables.topic_keys import TOPIC_KEYS
from tests.config.kafka_facts import default_text, read_facts, sorted_choices, validator_text

FACTS = read_facts("topic")


OURS = {"gregor.deep.validation": False}
SHARED = [definition for key, definition in TOPIC_KEYS.items() if key not in OURS]


def test_the_same_settings() -> None:
    assert sorted(set(TOPIC_KEYS) - set(OURS)) == sorted(FACTS)


@pytest.mark.parametrize("key", OURS)
def test_our_own_are_off_and_hidden_until_set(key: str) -> None:
    assert TOPIC_KEYS[key].default == OURS[key]
    assert TOPIC_KEYS[key].visibility == INTERNAL


@pytest.mark.parametrize("definition", SHARED, ids=lambda definition: definition.key)
def test_type_default_and_range(definition: ConfigDef) -> None:
    fact = FACTS[definition.key]
    assert definition.type == fact.type
    assert default_text(definition) == fact.default
    assert validator_text(definition) == sorted_choices(fact.validator)
    assert definition.help.endswith(".")


@pytest.mark.parametrize("definition", TOPIC_KEYS.values(), ids=lambda definition: definition.key)
def test_broker_synonyms_are_known_and_default_alike(definition: ConfigDef) -> None:
    for key in definition.broker_synonyms:
        assert key in BROKER_KEYS or key in NO_EFFECT_KEYS
    first = BROKER_KEYS.get(definition.broker_synonyms[0]) if definition.broker_synonyms else None
    if first is not None and first.default is not None:
        assert first.default == definition.default


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:2", "0:1, 1:2"])
def test_throttled_replicas(text: str) -> None:
    TOPIC_KEYS["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize("text", ["none", "0:1,*", "0", "0:", ":1", "0:1:2", "-1:0"])
def test_throttled_replicas_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="partition:broker"):
        TOPIC_KEYS["follower.replication.throttled.replicas"].parse(text)
