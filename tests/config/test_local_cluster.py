"""gregor.config.local_cluster: several brokers from the settings of one."""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.local_cluster import OFFSETS_COPIES, TOPICS_COPIES, copies_for, member_settings


def members(texts: dict[str, str], count: int = 3) -> list[BrokerConfig]:
    common = BrokerConfig(texts)
    return [BrokerConfig({**texts, **own}) for own in member_settings(common, count)]


def addresses(config: BrokerConfig) -> tuple[list[str], list[str]]:
    return [one.text for one in config.listeners], [one.text for one in config.advertised_listeners]


def test_the_rule_without_settings() -> None:
    found = members({})
    assert [one.broker_id for one in found] == [0, 1, 2]
    assert [one.log_dirs for one in found] == [[f"./gregor-data/broker-{index}"] for index in range(3)]
    assert [addresses(one)[0] for one in found] == [[f"PLAINTEXT://localhost:{port}"] for port in (9092, 9093, 9094)]
    assert [addresses(one)[1] for one in found] == [addresses(one)[0] for one in found]


def test_several_listeners_folders_and_a_first_number() -> None:
    found = members(
        {
            "broker.id": "10",
            "log.dirs": "/a,/b/",
            "listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://0.0.0.0:19092",
            "advertised.listeners": "INSIDE://10.0.0.1:9092,OUTSIDE://example.org:32000",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    last = found[2]
    assert (last.broker_id, last.log_dirs) == (12, ["/a/broker-2", "/b/broker-2"])
    assert addresses(last) == (
        ["INSIDE://10.0.0.1:9094", "OUTSIDE://0.0.0.0:19094"],
        ["INSIDE://10.0.0.1:9094", "OUTSIDE://example.org:32002"],
    )


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        ({"zookeeper.connect": "z:2181"}, [-1, -1]),
        ({"zookeeper.connect": "z:2181", "broker.id": "4"}, [4, 5]),
        ({"node.id": "7"}, [7, 8]),
        ({"node.id": "7", "broker.id": "7"}, [7, 8]),
    ],
)
def test_numbers(texts: dict[str, str], numbers: list[int]) -> None:
    assert [one.broker_id for one in members(texts, 2)] == numbers


def test_free_ports_stay_free_ports_and_old_keys_count_too() -> None:
    assert addresses(members({"listeners": "PLAINTEXT://:0"})[2])[0] == ["PLAINTEXT://:0"]
    listeners, advertised = addresses(members({"port": "9000", "advertised.host.name": "h", "advertised.port": "7"})[1])
    assert (listeners, advertised) == (["PLAINTEXT://localhost:9001"], ["PLAINTEXT://h:8"])


@pytest.mark.parametrize(
    ("texts", "count", "message"),
    [
        (
            {
                "listeners": "PLAINTEXT://:9092,B://:9094",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            3,
            "9092 and 9094 must be at least 3 apart",
        ),
        ({"listeners": "PLAINTEXT://:65534"}, 3, "need the ports 65534 to 65536"),
        ({"advertised.listeners": "PLAINTEXT://a:65534"}, 3, "^advertised.listeners=.* need the ports 65534 to 65536"),
        ({}, 0, "from 1 to 64"),
        ({}, 65, "from 1 to 64"),
    ],
)
def test_no_room(texts: dict[str, str], count: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        member_settings(BrokerConfig(texts), count)


def test_copies_are_on_up_to_three_brokers_by_default() -> None:
    keys = (OFFSETS_COPIES, TOPICS_COPIES)
    assert copies_for(2, (), keys) == {"offsets.topic.replication.factor": "2", "default.replication.factor": "2"}
    assert copies_for(5, {"default.replication.factor": "1"}, keys) == {"offsets.topic.replication.factor": "3"}
