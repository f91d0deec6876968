"""Settings of groups: the values that Apache Kafka 4.3.1 accepts and refuses."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.tables.group_keys import GROUP_KEYS, check_group, effective_group


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"consumer.session.timeout.ms": "50000"},
        {"share.auto.offset.reset": "earliest"},
        {"share.auto.offset.reset": "by_duration:P1DT2H3.5S"},
        {"streams.num.standby.replicas": "2"},
        {"consumer.heartbeat.interval.ms": "15000", "consumer.session.timeout.ms": "45000"},
    ],
)
def test_taken(texts: dict[str, str]) -> None:
    check_group(texts, BrokerConfig())


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"no.such.key": "1"}, "unknown group setting"),
        ({"consumer.session.timeout": "1"}, "did you mean consumer.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "1"}, "group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "group.consumer.max.session.timeout.ms"),
        ({"consumer.heartbeat.interval.ms": "999999"}, "group.consumer.max.heartbeat.interval.ms"),
        ({"consumer.assignment.interval.ms": "99999999"}, "group.consumer.max.assignment.interval.ms"),
        ({"consumer.session.timeout.ms": "x"}, "whole number"),
        ({"share.auto.offset.reset": "nowhere"}, "earliest"),
        ({"share.auto.offset.reset": "by_duration:P"}, "earliest"),
        ({"share.isolation.level": "x"}, "read_committed"),
        ({"streams.num.standby.replicas": "9"}, "group.streams.max.standby.replicas"),
        ({"share.record.lock.duration.ms": "1"}, "at least 1000"),
        ({"share.delivery.count.limit": "99"}, "group.share.max.delivery.count.limit"),
        ({"share.partition.max.record.locks": "5000"}, "group.share.max.partition.max.record.locks"),
        ({"streams.initial.rebalance.delay.ms": "-1"}, "at least 0"),
    ],
)
def test_refused(texts: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_group(texts, BrokerConfig())


def test_the_brokers_limits_count_as_they_are_set() -> None:
    broker = BrokerConfig(
        {"group.consumer.min.session.timeout.ms": "100", "group.consumer.min.heartbeat.interval.ms": "1"}
    )
    check_group({"consumer.session.timeout.ms": "6000"}, broker)
    with pytest.raises(ConfigError, match="above the heartbeat interval"):
        check_group({"consumer.session.timeout.ms": "4000"}, broker)


def test_the_brokers_own_values_count_where_a_group_has_none() -> None:
    broker = BrokerConfig(
        {"group.consumer.heartbeat.interval.ms": "10000", "group.consumer.min.session.timeout.ms": "100"}
    )
    with pytest.raises(ConfigError, match="above the heartbeat interval, 10000"):
        check_group({"consumer.session.timeout.ms": "10000"}, broker)


def test_those_of_consumer_groups_act_and_the_others_say_why_not() -> None:
    acting = {"consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"}
    found = {key for key, definition in GROUP_KEYS.items() if "Without effect here" not in definition.documentation}
    assert found == acting


def test_values_in_effect_stay_within_the_brokers_limits() -> None:
    broker = BrokerConfig({"group.consumer.max.session.timeout.ms": "50000"})
    texts = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "1000",
        "consumer.later": "1",
        "share.isolation.level": "x",
        "streams.num.standby.replicas": "1",
    }
    values, problems = effective_group(texts, broker)
    assert values == {
        "consumer.session.timeout.ms": 50000,
        "consumer.heartbeat.interval.ms": 5000,
        "streams.num.standby.replicas": 1,
    }
    assert [problem.partition("=")[0] for problem in problems] == [
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.later",
        "share.isolation.level",
    ]
    assert "at most group.consumer.max.session.timeout.ms, 50000, which is used instead" in problems[0]
    assert effective_group({}, broker) == ({}, [])
