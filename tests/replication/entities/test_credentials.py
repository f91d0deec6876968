"""SCRAM credentials in their nodes: bytes as Apache Kafka writes them, changes, notices, and nodes that are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.sasl.scram import MECHANISMS, parse_credential, salted_password
from gregor.replication.entities.credentials import USERS, Removal, ScramCredentials, Upsertion
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import CONFIG_CHANGES, config_path, decode_config, decode_config_change
from tests.replication.fakes import on_loop

SALT = b"salt"
SALTED = salted_password(MECHANISMS["SCRAM-SHA-256"], "pw", SALT, 4096)
# The four fields and their order are those that kafka-configs.sh of Apache Kafka stores.
FIELDS = ("salt", "stored_key", "server_key", "iterations")


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> Upsertion:
    return Upsertion(user, mechanism, iterations, SALT, SALTED)


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    return store


@on_loop
async def test_credential_is_stored_beside_quotas_with_a_notice(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    path = config_path(USERS, "al%20ice")
    await store.create(path, b'{"version":1,"config":{"producer_byte_rate":"1"}}', make_parents=True)
    await store.create(CONFIG_CHANGES, make_parents=True)
    credentials = ScramCredentials(store)
    await credentials.start()
    await credentials.alter("al ice", [], [upsertion("al ice")])
    node = await store.get(path)
    assert node is not None
    texts = decode_config(node[0])
    assert texts.pop("producer_byte_rate") == "1"
    assert [part.partition("=")[0] for part in texts["SCRAM-SHA-256"].split(",")] == list(FIELDS)
    assert credentials.get("al ice", "SCRAM-SHA-256") == parse_credential(texts["SCRAM-SHA-256"])
    (notice,) = await store.children(CONFIG_CHANGES)
    change = await store.get(f"{CONFIG_CHANGES}/{notice}")
    assert change is not None
    assert decode_config_change(change[0]) == "users/al%20ice"
    await credentials.alter("al ice", [Removal("al ice", 1)], [])
    assert dict(credentials.users) == {}
    await store.close()


@on_loop
async def test_another_broker_reads_what_has_changed(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.create(CONFIG_CHANGES, make_parents=True)
    await store.create(config_path(USERS, "<default>"), make_parents=True)
    mine, other = ScramCredentials(store), ScramCredentials(store)
    await mine.start()
    await other.start()
    await mine.alter("bob", [], [upsertion("bob", 2)])
    await mine.alter("eve", [], [upsertion("eve")])
    assert dict(other.users) == {}
    await other.changed("users", "bob")
    assert list(other.users) == ["bob"]
    await other.changed("clients", "eve")
    await other.changed("users", "eve/clients/c")
    assert list(other.users) == ["bob"]
    await other.changed("users", None)
    assert sorted(other.users) == ["bob", "eve"]
    await store.delete(config_path(USERS, "bob"))
    await other.changed("users", None)
    assert list(other.users) == ["eve"]
    await store.close()


@on_loop
async def test_broken_nodes_give_no_credential_and_no_secret_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    await store.create(config_path(USERS, "a"), b"{s3cret", make_parents=True)
    await store.create(config_path(USERS, "b"), b'{"version":1,"config":{"SCRAM-SHA-256":"salt=s3cret"}}')
    credentials = ScramCredentials(store)
    await credentials.start()
    assert dict(credentials.users) == {}
    assert caplog.text.count("WARNING") == 2
    assert "s3cret" not in caplog.text
    with pytest.raises(KafkaError, match="not in Kafka's form"):
        await credentials.alter("a", [], [upsertion("a")])
    await store.close()


@on_loop
async def test_both_mechanisms_change_in_one_request(tmp_path: Path) -> None:
    """kafka-configs.sh of Apache Kafka 3.9 sends all changes of a command in one request."""
    store = await opened(tmp_path)
    await store.create(CONFIG_CHANGES, make_parents=True)
    credentials = ScramCredentials(store)
    await credentials.alter("a", [], [upsertion("a", 1), upsertion("a", 2)])
    assert credentials.users["a"].keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    await credentials.alter("a", [Removal("a", 1)], [upsertion("a", 2, 8192)])
    assert {name: one.iterations for name, one in credentials.users["a"].items()} == {"SCRAM-SHA-512": 8192}
    with pytest.raises(KafkaError) as refused:
        await credentials.alter("a", [Removal("a", 1)], [upsertion("a", 2)])
    assert refused.value.code == ErrorCode.RESOURCE_NOT_FOUND
    assert credentials.users["a"]["SCRAM-SHA-512"].iterations == 8192
    await credentials.alter("a", [], [upsertion("a", 1)])
    await credentials.alter("a", [Removal("a", 1), Removal("a", 2)], [])
    assert dict(credentials.users) == {}
    await store.close()


@pytest.mark.parametrize(
    ("user", "removals", "upsertions", "code"),
    [
        ("", [Removal("", 1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", [Removal("a", 3)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("a", [], [upsertion("a", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("a", [], [upsertion("a", 1, 4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", [], [upsertion("a", 1, 16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("a", [Removal("a", 1)], [upsertion("a")], ErrorCode.DUPLICATE_RESOURCE),
        ("a", [Removal("a", 1), Removal("a", 1)], [], ErrorCode.DUPLICATE_RESOURCE),
        ("a", [], [upsertion("a", 2), upsertion("a", 1), upsertion("a", 2)], ErrorCode.DUPLICATE_RESOURCE),
        ("a", [Removal("a", 1)], [], ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
@on_loop
async def test_refusals(
    tmp_path: Path, user: str, removals: list[Removal], upsertions: list[Upsertion], code: ErrorCode
) -> None:
    store = await opened(tmp_path)
    await store.create(CONFIG_CHANGES, make_parents=True)
    with pytest.raises(KafkaError) as refused:
        await ScramCredentials(store).alter(user, removals, upsertions)
    assert refused.value.code == code
    await store.close()
