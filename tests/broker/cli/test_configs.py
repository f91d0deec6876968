"""`gregor configs` without a broker: the meaning of its flags, and the flags that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.broker.cli import configs
from gregor.broker.cli.config_report import Entity, EntityType, existing, source_name, value_text
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.quota_configs import Part, quota_parts
from gregor.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.broker.cli.fake_client import Answers, FakeClient

FLAGS = ("topic", "broker", "broker_logger", "client_metrics", "group", "user", "client", "ip")


def given(**flags: object) -> dict[str, object]:
    nothing = dict.fromkeys(FLAGS) | {"entity_type": (), "entity_name": (), "entity_default": 0}
    nothing |= dict.fromkeys(("broker_defaults", "user_defaults", "client_defaults", "ip_defaults"), False)
    return nothing | {"add_config": None, "add_config_file": None, "delete_configs": ()} | flags


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--topic", "t"], "exactly one"),
        (["--describe", "--alter", "--topic", "t"], "exactly one"),
        (["--describe"], "exactly one entity"),
        (["--describe", "--topic", "t", "--broker", "0"], "exactly one entity"),
        (["--describe", "--topic", "t", "--entity-name", "t"], "need --entity-type"),
        (["--describe", "--entity-type", "topix"], "types are topics, brokers"),
        (["--describe", "--entity-type", "users", "--entity-type", "topics"], "Only users and clients"),
        (["--describe", "--entity-type", "users", "--entity-type", "ips"], "cannot be combined"),
        (["--describe", "--user", "a", "--user-defaults"], "each of users, clients and ips once"),
        (["--describe", "--user", "a", "--topic", "t"], "leave out the other entity"),
        (["--describe", "--user", "a", "--all"], "--all is not for quotas"),
        (["--describe", "--user", "a", "--entity-name", "b"], "before each --entity-name"),
        (["--alter", "--entity-type", "users", "--add-config", "producer_byte_rate=1"], "for each --entity-type"),
        (["--alter", "--user", "a", "--add-config", "producer_byte_rate=fast"], "a quota is a number"),
        (["--alter", "--user", "a", "--add-config", "producer_byte_rate=1_000"], "a quota is a number"),
        (["--describe", "--entity-type", "topics", "--entity-type", "brokers"], "only users and clients"),
        (["--describe", "--entity-type", "topics", "--entity-default"], "is possible for brokers only"),
        (["--describe", "--entity-type", "brokers", "--entity-default", "--entity-name", "1"], "contradict"),
        (["--describe", "--broker", "one"], "is not a broker id"),
        (["--describe", "--entity-type", "broker-loggers"], "needs --entity-name"),
        (["--describe", "--topic", "t", "--add-config", "a=1"], "need --alter"),
        (["--alter", "--entity-type", "topics", "--add-config", "a=1"], "needs the name"),
        (["--alter", "--topic", "t"], "needs --add-config"),
        (["--alter", "--topic", "t", "--all", "--add-config", "a=1"], "--all needs --describe"),
        (["--alter", "--topic", "t", "--add-config", "a=1", "--add-config-file", "f"], "contradict"),
        (["--alter", "--topic", "t", "--add-config", "a"], "KEY=VALUE"),
        (["--alter", "--topic", "t", "--add-config", "a=1,2"], "put values with commas into"),
        (["--alter", "--topic", "t", "--add-config", "a b=1"], "is not a valid key"),
        (["--alter", "--topic", "t", "--add-config", "a=1", "--delete-config", "b,a"], "both added and deleted"),
        (["--alter", "--topic", "t", "--add-config-file", "no-such-file"], "cannot read"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert configs.main(arguments) == 1
    assert cause in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "entity"),
    [
        ({"topic": "t"}, Entity(EntityType.TOPICS, "t")),
        ({"broker": "3"}, Entity(EntityType.BROKERS, "3")),
        ({"broker_defaults": True}, Entity(EntityType.BROKERS, "")),
        ({"entity_type": ("brokers",), "entity_default": 1}, Entity(EntityType.BROKERS, "")),
        ({"entity_type": ("brokers",)}, Entity(EntityType.BROKERS, None)),
        ({"entity_type": ("broker-loggers",), "entity_name": ("0",)}, Entity(EntityType.BROKER_LOGGERS, "0")),
        ({"client_metrics": "m"}, Entity(EntityType.CLIENT_METRICS, "m")),
        ({"group": "g"}, Entity(EntityType.GROUPS, "g")),
    ],
)
def test_entities(flags: dict[str, object], entity: Entity) -> None:
    assert configs.parse_entity(given(**flags)) == entity


@pytest.mark.parametrize(
    ("flags", "order", "parts"),
    [
        ({"topic": "t"}, [], []),
        ({"user": "a"}, [], [Part("users", "a")]),
        ({"user": "a", "client_defaults": True}, [], [Part("users", "a"), Part("clients", "")]),
        ({"entity_type": ("users",)}, [], [Part("users", None)]),
        ({"entity_type": ("clients", "users")}, ["app", ""], [Part("users", ""), Part("clients", "app")]),
        ({"entity_type": ("users", "clients")}, ["a"], [Part("users", "a"), Part("clients", None)]),
        ({"ip": "10.0.0.1"}, [], [Part("ips", "10.0.0.1")]),
    ],
)
def test_entities_of_quotas(flags: dict[str, object], order: list[str], parts: list[Part]) -> None:
    assert quota_parts(given(**flags), order) == parts


def test_values_with_commas() -> None:
    text = "a=1,cleanup.policy=[compact,delete], b = x=[y=z] ,empty="
    with pytest.raises(CommandError, match="KEY=VALUE"):
        configs.parse_settings(text)
    assert configs.parse_settings("a=1,cleanup.policy=[compact,delete],b = [x=y,z] ,empty=") == {
        "a": "1", "cleanup.policy": "compact,delete", "b": "x=y,z", "empty": "",
    }  # fmt: skip


def test_changes_from_a_file_and_back_to_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.properties"
    file.write_text("retention.ms=5\n# a comment\ncleanup.policy=compact,delete\n")
    changes = configs.parse_changes(given(add_config_file=str(file), delete_configs=("x.y, z", "w")))
    assert changes == {"retention.ms": "5", "cleanup.policy": "compact,delete", "x.y": None, "z": None, "w": None}


def test_words() -> None:
    assert source_name(1) == "DYNAMIC_TOPIC_CONFIG" and source_name(99) == "UNKNOWN"
    assert value_text(None, True) == "(hidden)" and value_text(None, False) == "" and value_text("v", True) == "v"
    assert EntityType.CLIENT_METRICS.one == "client-metric" and EntityType.BROKER_LOGGERS.resource_type == 8


def client_with(*settings: tuple[str, int]) -> FakeClient:
    """A cluster in which every entity has these settings, each with its source."""
    found = [DescribeConfigsResponse.DescribeConfigsResourceResult(name=key, config_source=at) for key, at in settings]
    described = DescribeConfigsResponse(results=[DescribeConfigsResponse.DescribeConfigsResult(configs=found)])
    return FakeClient(
        {
            DescribeConfigsRequest: lambda _request, _node: described,
            IncrementalAlterConfigsRequest: lambda _request, _node: IncrementalAlterConfigsResponse(),
        }
    )


@pytest.mark.parametrize(
    ("entity", "source", "other"),
    [
        (Entity(EntityType.TOPICS, "t"), 1, 3),
        (Entity(EntityType.BROKERS, "1"), 2, 3),
        (Entity(EntityType.BROKERS, ""), 3, 4),
        (Entity(EntityType.CLIENT_METRICS, "m"), 7, 5),
        (Entity(EntityType.GROUPS, "g"), 8, 5),
    ],
)
def test_only_a_setting_of_the_entity_itself_is_deleted(
    entity: Entity, source: int, other: int, capsys: pytest.CaptureFixture[str]
) -> None:
    client = client_with(("a", source), ("b", other))
    with pytest.raises(CommandError, match=r"Invalid config\(s\): b, c\. The entity has no such setting of its own"):
        configs.alter(client, entity, {"a": None, "b": None, "c": None, "d": "1"})
    assert client.requests(IncrementalAlterConfigsRequest) == [] and capsys.readouterr().out == ""
    configs.alter(client, entity, {"a": None, "d": "1"})
    assert len(client.requests(IncrementalAlterConfigsRequest)) == 1


def test_a_logger_that_is_there_may_be_deleted() -> None:
    client = client_with(("gregor", 6), ("gregor.net", 5))
    entity = Entity(EntityType.BROKER_LOGGERS, "1")
    configs.alter(client, entity, {"gregor.net": None})
    with pytest.raises(CommandError, match=r"Invalid config\(s\): gregor\.none"):
        configs.alter(client, entity, {"gregor.none": None})


def test_settings_are_added_without_the_right_to_describe() -> None:
    client = client_with()
    configs.alter(client, Entity(EntityType.TOPICS, "t"), {"a": "1"})
    assert client.requests(DescribeConfigsRequest) == []


@pytest.mark.parametrize("version", [0, 1])
def test_entities_of_brokers_that_list_client_metrics_only(version: int) -> None:
    """Version 0 of the request has no types; brokers with it have no settings of groups."""
    found = [ListConfigResourcesResponse.ConfigResource(resource_name="named")]

    def resources(request: ListConfigResourcesRequest, _node: int | None) -> ListConfigResourcesResponse:
        request.encode(version)
        return ListConfigResourcesResponse(config_resources=found)

    def groups(_request: ListGroupsRequest, node: int | None) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id=f"g{node}")])

    answers: Answers = {ListConfigResourcesRequest: resources, ListGroupsRequest: groups}
    client = FakeClient(answers, versions={ListConfigResourcesRequest: version})
    assert existing(client, EntityType.CLIENT_METRICS) == ["named"]
    assert existing(client, EntityType.GROUPS) == ["g1", "g2", *(["named"] if version else [])]


def test_only_a_quota_of_the_entity_itself_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    make = DescribeClientQuotasResponse
    entry = make.EntryData(
        entity=[make.EntityData(entity_type="user", entity_name="a")], values=[make.ValueData(key="x", value=1.0)]
    )
    client = FakeClient(
        {
            DescribeClientQuotasRequest: lambda _request, _node: make(entries=[entry]),
            AlterClientQuotasRequest: lambda _request, _node: AlterClientQuotasResponse(),
        }
    )
    monkeypatch.setattr(configs, "WireClient", lambda *_: client)
    assert configs.main(["--alter", "--user", "a", "--delete-config", "x,y"]) == 1
    assert client.requests(AlterClientQuotasRequest) == []
    assert configs.main(["--alter", "--user", "a", "--delete-config", "x"]) == 0
    assert len(client.requests(AlterClientQuotasRequest)) == 1
    (described, _) = client.requests(DescribeClientQuotasRequest)
    assert described.strict and [(one.entity_type, one.match) for one in described.components] == [("user", "a")]
