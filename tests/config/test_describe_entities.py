"""Groups, client metrics and loggers as DescribeConfigs shows them, after Apache Kafka 4.3.1's answers."""

from __future__ import annotations

from gregor.config.broker import BrokerConfig
from gregor.config.describe import ConfigSynonym
from gregor.config.describe_entities import describe_client_metrics, describe_group, describe_logger


def test_a_groups_setting_through_all_layers() -> None:
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    broker.update_dynamic({}, {"group.consumer.assignment.interval.ms": "2000"})
    found = {entry.name: entry for entry in describe_group({"streams.num.standby.replicas": " 2"}, broker)}
    assert len(found) == 17
    standby = found["streams.num.standby.replicas"]
    assert (standby.value, standby.source_id, standby.read_only) == ("2", 8, False)
    assert standby.synonyms == (
        ConfigSynonym("streams.num.standby.replicas", "2", "DYNAMIC_GROUP_CONFIG"),
        ConfigSynonym("group.streams.num.standby.replicas", "0", "DEFAULT_CONFIG"),
    )
    interval, session = found["consumer.assignment.interval.ms"], found["consumer.session.timeout.ms"]
    assert (interval.value, interval.source_id) == ("2000", 3)
    assert (session.value, session.source_id) == ("50000", 4)


def test_a_groups_setting_without_a_brokers() -> None:
    (entry,) = [one for one in describe_group({}, BrokerConfig()) if one.name == "share.auto.offset.reset"]
    assert (entry.value, entry.source_id) == ("latest", 5)
    assert entry.synonyms == (ConfigSynonym("share.auto.offset.reset", "latest", "DEFAULT_CONFIG"),)


def test_a_subscription() -> None:
    found = {entry.name: entry for entry in describe_client_metrics({"match": "client_id=x"})}
    assert set(found) == {"interval.ms", "match", "metrics"}
    assert (found["match"].value, found["match"].source_id, found["match"].type_id) == ("client_id=x", 7, 7)
    assert found["match"].synonyms == (ConfigSynonym("match", "client_id=x", "DYNAMIC_CLIENT_METRICS_CONFIG"),)
    interval = found["interval.ms"]
    assert (interval.value, interval.source_id, interval.synonyms) == ("300000", 5, ())


def test_a_logger() -> None:
    entry = describe_logger("root", "INFO")
    assert (entry.source_id, entry.type_id, entry.read_only, entry.synonyms) == (6, 0, False, ())
