"""DescribeClientQuotas and AlterClientQuotas (KIP-546), and the effect of quotas on the requests of a client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ListGroupsRequest,
    MetadataRequest,
)
from gregor.replication.store.nodes import CONFIG_CHANGE_PREFIX, encode_config, encode_config_change
from tests.broker.harness import Harness, Wire, batch, errors, fetch_request, produce_request

EXACT, DEFAULT, ANY = 0, 1, 2
Parts = dict[str, str | None]
Change = dict[str, float | None]


@pytest.fixture(autouse=True)
def no_quotas_afterwards(harness: Harness) -> Iterator[None]:
    yield
    harness.connection.throttled_ms.clear()
    described = harness.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    for entry in described.entries:
        parts = {part.entity_type: part.entity_name for part in entry.entity}
        alter(harness, parts, {value.key: None for value in entry.values})
    assert harness.broker.quotas is None


def alter(harness: Harness, parts: Parts, changes: Change, version: int = 1, **fields: Any) -> tuple[int, str | None]:
    make = AlterClientQuotasRequest
    entry = make.EntryData(
        entity=[make.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    response: AlterClientQuotasResponse = harness.ask(make(entries=[entry], **fields), version)
    (answer,) = response.entries
    assert {part.entity_type: part.entity_name for part in answer.entity} == parts
    return answer.error_code, answer.error_message


def described(harness: Harness, *filters: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in filters
        ],
        strict=strict,
    )
    response: DescribeClientQuotasResponse = harness.ask(request, version)
    if response.error_code:
        assert response.entries is None
        return ErrorCode(response.error_code).name, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


ALICE, ANYONE = ("user", "alice"), ("user", None)
APP, ANY_CLIENT = ("client-id", "app"), ("client-id", None)


@pytest.fixture
def some_quotas(harness: Harness) -> None:
    for index, parts in enumerate(
        ([ALICE], [ANYONE], [ALICE, APP], [ALICE, ANY_CLIENT], [APP], [ANY_CLIENT], [("ip", "127.0.0.9")])
    ):
        key = "connection_creation_rate" if parts[0][0] == "ip" else "producer_byte_rate"
        assert alter(harness, dict(parts), {key: 100_000_000.0 + index})[0] == 0


FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, list[tuple[tuple[str, str | None], ...]]]] = [
    ([("user", EXACT, "alice")], False, [(ALICE,), (ALICE, APP), (ALICE, ANY_CLIENT)]),
    ([("user", EXACT, "alice")], True, [(ALICE,)]),
    ([("user", DEFAULT, None)], False, [(ANYONE,)]),
    ([("user", ANY, None)], True, [(ALICE,), (ANYONE,)]),
    ([("user", EXACT, "alice"), ("client-id", DEFAULT, None)], True, [(ALICE, ANY_CLIENT)]),
    ([("user", ANY, None), ("client-id", ANY, None)], False, [(ALICE, APP), (ALICE, ANY_CLIENT)]),
    ([("client-id", EXACT, "app")], False, [(APP,), (ALICE, APP)]),
    ([("client-id", EXACT, "app")], True, [(APP,)]),
    ([("ip", ANY, None)], True, [(("ip", "127.0.0.9"),)]),
    ([], True, []),
    ([("user", EXACT, "nobody")], False, []),
]


@pytest.mark.parametrize(("filters", "strict", "expected"), FILTERS)
@pytest.mark.parametrize("version", [0, 1])
def test_filters(
    harness: Harness, some_quotas: None, filters: Any, strict: bool, expected: list[Any], version: int
) -> None:
    assert sorted(described(harness, *filters, strict=strict, version=version), key=str) == sorted(expected, key=str)
    assert len(described(harness)) == 7


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([("", EXACT, "a")], "INVALID_REQUEST"),
        ([("user", EXACT, "a"), ("user", ANY, None)], "INVALID_REQUEST"),
        ([("group", EXACT, "a")], "UNSUPPORTED_VERSION"),
        ([("user", EXACT, None)], "INVALID_REQUEST"),
        ([("user", DEFAULT, "a")], "INVALID_REQUEST"),
        ([("user", ANY, "a")], "INVALID_REQUEST"),
        ([("user", 3, None)], "INVALID_REQUEST"),
        ([("ip", ANY, None), ("user", ANY, None)], "INVALID_REQUEST"),
    ],
)
def test_filters_that_are_refused(harness: Harness, filters: Any, error: str) -> None:
    found, message = described(harness, *filters)
    assert found == error
    assert message


@pytest.mark.parametrize(
    ("parts", "changes", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "the entity is empty"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "the name of the user is empty"),
        ({"user": ".."}, {"producer_byte_rate": 1.0}, "no node of the metadata store"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "the entity type 'group' does not exist"),
        ({"user": "a", "ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}, "an address cannot be combined"),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}, "producer_byte_rate is not a quota of address 127.0.0.1"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "connection_creation_rate is not a quota of user a"),
        ({"user": "a"}, {"producer_byte_rate": 0.0}, "must be greater than 0"),
        ({"user": "a"}, {"request_percentage": float("nan")}, "must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "must be a whole number"),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 2.0**31}, "is too large"),
        ({"ip": "not an address"}, {"connection_creation_rate": 1.0}, "neither an address nor a host"),
    ],
)
def test_changes_that_are_refused(harness: Harness, parts: Parts, changes: Change, message: str) -> None:
    code, text = alter(harness, parts, changes)
    assert errors(code) == ["INVALID_REQUEST"]
    assert text is not None and message in text
    assert described(harness) == {}


def test_a_removal_of_what_is_no_quota_keeps_the_credentials_of_the_user(harness: Harness) -> None:
    store, path = harness.node.store, "/config/users/with-credentials"
    harness.run(store.create(path, encode_config({"SCRAM-SHA-256": "salt=x"}), make_parents=True))
    changes: Change = {"SCRAM-SHA-256": None, "no such key": None}
    assert alter(harness, {"user": "with-credentials"}, changes) == (0, None)
    node = harness.run(store.get(path))
    assert node is not None and json.loads(node[0])["config"] == {"SCRAM-SHA-256": "salt=x"}


def test_an_entity_in_a_request_twice_is_refused(harness: Harness) -> None:
    make = AlterClientQuotasRequest
    entries = [
        make.EntryData(
            entity=[make.EntityData(entity_type="user", entity_name="a")],
            ops=[make.OpData(key="producer_byte_rate", value=value, remove=False)],
        )
        for value in (1.0, 2.0)
    ]
    response = harness.ask(make(entries=entries), 1)
    assert errors(*[one.error_code for one in response.entries]) == ["INVALID_REQUEST"] * 2


def test_an_entity_with_two_names_of_one_type_is_refused(harness: Harness) -> None:
    make = AlterClientQuotasRequest
    entry = make.EntryData(
        entity=[make.EntityData(entity_type="user", entity_name=name) for name in ("a", "b")],
        ops=[make.OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )
    (answer,) = harness.ask(make(entries=[entry]), 1).entries
    assert errors(answer.error_code) == ["INVALID_REQUEST"]
    assert answer.error_message == "the entity has two names of the type user; give one"
    assert described(harness) == {}


def test_validation_alone_changes_nothing(harness: Harness) -> None:
    assert alter(harness, {"user": "alice"}, {"request_percentage": 5.0}, validate_only=True) == (0, None)
    assert described(harness) == {}
    assert errors(alter(harness, {"user": "alice"}, {"no": 5.0}, validate_only=True)[0]) == ["INVALID_REQUEST"]


def test_a_quota_is_in_the_node_in_effect_and_described(harness: Harness) -> None:
    changes: Change = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert alter(harness, {"user": "A b", "client-id": None}, changes, version=0) == (0, None)
    node = harness.run(harness.node.store.get("/config/users/A%20b/clients/<default>"))
    assert node is not None
    assert json.loads(node[0])["config"] == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    quotas = harness.broker.quotas
    assert quotas is not None
    rate = quotas.meters_of("A b", "any").produce
    assert rate is not None and rate.bound == 1024
    assert described(harness) == {(("user", "A b"), ("client-id", None)): changes}


def test_a_quota_that_a_tool_writes_to_the_nodes_is_in_effect(harness: Harness) -> None:
    store = harness.node.store
    harness.run(store.create("/config/clients/by-tool", encode_config({"consumer_byte_rate": "7"}), make_parents=True))
    harness.run(store.create(CONFIG_CHANGE_PREFIX, encode_config_change("clients/by-tool"), sequential=True))
    harness.until(lambda: harness.broker.quotas is not None)
    assert described(harness) == {(("client-id", "by-tool"),): {"consumer_byte_rate": 7.0}}


# -- the effect -------------------------------------------------------------------------------------------------------


def frozen(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the quotas and that of the broker."""
    quotas = harness.broker.quotas
    assert quotas is not None
    now_ms = quotas.now_ms()
    monkeypatch.setattr(quotas, "now_ms", lambda: now_ms)
    monkeypatch.setattr(type(harness.broker), "now_ms", staticmethod(lambda: now_ms))
    monkeypatch.setattr("gregor.broker.net.produce_fast_path.time", lambda: (now_ms + 0.5) / 1000)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_producer_above_its_rate_is_throttled(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    harness.create_topic(topic)
    assert alter(harness, {"client-id": "tests"}, {"producer_byte_rate": 1000.0})[0] == 0
    frozen(harness, monkeypatch)
    wire = Wire(harness)
    request = produce_request(topic, batch(b"x" * 4000))
    throttle_ms = [wire.ask(request, version).throttle_time_ms for _ in range(3)]
    assert throttle_ms[:2] == [0, 0]
    assert 2000 < throttle_ms[2] < 2600
    assert not wire.transport.reading
    assert len(harness.records(topic)) == 3
    wire.close()


def test_a_throttled_connection_is_served_again_when_the_time_is_over(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    wire = Wire(harness)
    wire.connection.throttle(50)
    assert not wire.transport.reading
    harness.until(lambda: wire.transport.reading)
    assert wire.ask(produce_request(topic, batch(b"x")), 12).throttle_time_ms == 0
    wire.close()


def test_requests_behind_a_throttled_one_wait(harness: Harness, topic: str) -> None:
    from tests.broker.harness import request_frame

    harness.create_topic(topic)
    assert alter(harness, {"client-id": "tests"}, {"producer_byte_rate": 10_000_000.0})[0] == 0
    wire = Wire(harness)
    frame = request_frame(produce_request(topic, batch(b"x" * 100)), 12)
    wire.send(frame)
    assert harness.broker.quotas is not None
    rate = harness.broker.quotas.meters_of("ANONYMOUS", "tests").produce
    assert rate is not None
    rate.limit_to(1)
    view = wire.connection.get_buffer(65536)
    view[: 2 * len(frame)] = frame * 2
    wire.connection.buffer_updated(2 * len(frame))
    assert len(harness.records(topic)) == 2
    wire.close()


def test_a_consumer_above_its_rate_gets_an_empty_response(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    for _ in range(3):
        harness.produce(topic, b"x" * 6000)
    assert alter(harness, {"client-id": "tests"}, {"consumer_byte_rate": 1000.0})[0] == 0
    frozen(harness, monkeypatch)
    first = harness.ask(fetch_request([(topic, 0, 0)], max_wait_ms=0, session_epoch=0), 12)
    assert first.throttle_time_ms == 0
    assert first.session_id > 0
    assert len(first.responses[0].partitions[0].records) > 6000
    second = harness.ask(fetch_request([(topic, 0, 1)], max_wait_ms=0, session_epoch=0), 12)
    assert (second.throttle_time_ms > 1000, second.session_id, second.responses) == (True, 0, [])
    incremental = fetch_request([(topic, 0, 1)], max_wait_ms=0, session_id=first.session_id, session_epoch=1)
    third = harness.ask(incremental, 12)
    assert (third.throttle_time_ms, third.session_id, third.responses) == (
        second.throttle_time_ms,
        first.session_id,
        [],
    )
    assert harness.connection.throttled_ms == [second.throttle_time_ms] * 2


def test_an_old_consumer_above_its_rate_gets_an_empty_response(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    for _ in range(3):
        harness.produce(topic, b"x" * 6000)
    assert alter(harness, {"client-id": "tests"}, {"consumer_byte_rate": 1000.0})[0] == 0
    frozen(harness, monkeypatch)
    request = fetch_request([(topic, 0, 0)], max_wait_ms=0)
    assert harness.ask(request, 2).throttle_time_ms == 0
    second = harness.ask(request, 2)
    assert second.throttle_time_ms > 1000
    assert second.responses == []


def test_followers_are_exempt(harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic(topic)
    harness.produce(topic, b"x" * 6000)
    harness.add_follower(topic)
    assert alter(harness, {"client-id": None}, {"consumer_byte_rate": 1.0})[0] == 0
    response = harness.ask(fetch_request([(topic, 0, 0)], max_wait_ms=0, replica_id=5), 5)
    assert response.throttle_time_ms == 0
    assert harness.connection.throttled_ms == []


@pytest.mark.parametrize(("request_", "version"), [(ListGroupsRequest(), 4), (MetadataRequest(topics=None), 9)])
def test_time_of_requests_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, request_: Any, version: int
) -> None:
    assert alter(harness, {"client-id": "tests"}, {"request_percentage": 1e-9})[0] == 0
    wire = Wire(harness)
    begin = len(wire.transport.written)
    wire.send(_frame(request_, version))
    harness.until(lambda: len(wire.transport.written) > begin)
    frame = bytes(wire.transport.written[begin:])
    # The throttle time is the first field behind a response header without tags, or with an empty list of them.
    at = 9 if version == 9 or version == 4 else 8
    assert int.from_bytes(frame[at : at + 4]) == 1000
    assert not wire.transport.reading
    wire.close()


def _frame(request: Any, version: int) -> bytes:
    from tests.broker.harness import request_frame

    return request_frame(request, version)


def changes_quota(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert alter(harness, {"client-id": "tests"}, {"controller_mutation_rate": 1.0})[0] == 0
    frozen(harness, monkeypatch)


@pytest.mark.parametrize("version", [5, 6])
def test_changes_of_topics_above_the_quota(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    changes_quota(harness, monkeypatch)

    def create(name: str, partitions: int, validate_only: bool = False) -> Any:
        wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=validate_only)
        return harness.ask(request, version)

    create(f"{topic}-0", 1000, validate_only=True)
    assert create(f"{topic}-1", 13).throttle_time_ms == (0 if version == 6 else 2000)
    second = create(f"{topic}-2", 1)
    expected, throttle_ms = ("THROTTLING_QUOTA_EXCEEDED", 2000) if version == 6 else ("NONE", 3000)
    assert errors(second.topics[0].error_code) == [expected]
    assert second.throttle_time_ms == throttle_ms
    if version == 6:
        assert harness.connection.throttled_ms == [2000]
        delete = DeleteTopicsRequest(topic_names=[f"{topic}-1"], timeout_ms=30_000)
        assert errors(harness.ask(delete, 5).responses[0].error_code) == ["THROTTLING_QUOTA_EXCEEDED"]
        wider = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=f"{topic}-1", count=20, assignments=None)],
            timeout_ms=30_000,
        )
        assert errors(harness.ask(wider, 3).results[0].error_code) == ["THROTTLING_QUOTA_EXCEEDED"]


def test_a_connection_of_an_address_above_its_rate_is_held_and_closed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alter(harness, {"ip": "127.0.0.9"}, {"connection_creation_rate": 100.0})[0] == 0
    frozen(harness, monkeypatch)
    wires = [Wire(harness, "127.0.0.9") for _ in range(1001)]
    assert wires[1000].ask(ListGroupsRequest(), 0) is None
    assert wires[999].ask(ListGroupsRequest(), 0) is not None
    harness.until(lambda: wires[1000].transport.aborted)
    for wire in wires[:1000]:
        assert not wire.transport.aborted
        wire.close()


def test_a_changed_quota_acts_on_warm_connections(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic(topic)
    wire = Wire(harness)
    produce, fetch = produce_request(topic, batch(b"x" * 4000)), fetch_request([(topic, 0, 0)], max_wait_ms=0)
    high, low = (dict.fromkeys(("producer_byte_rate", "consumer_byte_rate"), rate) for rate in (1e12, 1000.0))

    def throttle_ms(request: Any) -> list[int]:
        return [wire.ask(request, 12).throttle_time_ms for _ in range(4)]

    monkeypatch.setattr(type(wire.connection), "throttle", lambda self, duration_ms: None)
    assert alter(harness, {"client-id": "tests"}, high)[0] == 0
    frozen(harness, monkeypatch)
    assert throttle_ms(produce) == throttle_ms(fetch) == [0] * 4
    assert alter(harness, {"client-id": "tests"}, low)[0] == 0
    assert all(throttle_ms(produce)) and all(throttle_ms(fetch))
    assert alter(harness, {"client-id": "tests"}, high)[0] == 0
    assert throttle_ms(produce) == throttle_ms(fetch) == [0] * 4
    wire.close()
