"""Access rules in their nodes: bytes as Apache Kafka 3.9 writes them, notices, concurrent changes, expired sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.acls import Acl, AclFilter, Operation, Pattern, PatternType, Permission, ResourceType, Rule
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.entities import acl_nodes
from gregor.replication.entities.acls import AclStore
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import NodeFormatError
from tests.replication.fakes import HandClock, on_loop

TOPIC = ResourceType.TOPIC
PREFIXED = PatternType.PREFIXED
READ = Rule("User:alice", Permission.ALLOW, Operation.READ)
DENIED = Rule("User:bob", Permission.DENY, Operation.ALTER_CONFIGS, "10.0.0.1")
ORDERS = Pattern(TOPIC, "orders")
TEAM = Pattern(ResourceType.TRANSACTIONAL_ID, "team-", PREFIXED)
READ_BYTES = b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'


class Subject:
    """A broker's view of the rules; `other` of the same store is another broker's."""

    def __init__(self, store: EmbeddedStore, *, follows: bool = True) -> None:
        self.store = store
        self.tasks: list[asyncio.Task[None]] = []
        self.changes: list[tuple[Pattern, tuple[Rule, ...]]] = []
        self.acls = AclStore(store, self._spawn if follows else lambda work: work.close(), HandClock())
        self.acls.on_changed.append(self._changed)

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def _changed(self, pattern: Pattern, rules: Collection[Rule]) -> None:
        self.changes.append((pattern, tuple(rules)))

    async def settle(self) -> None:
        while self.tasks:
            await self.tasks.pop(0)

    def all(self) -> set[Acl]:
        return {Acl(pattern, rule) for pattern, rules in self.acls.matching(AclFilter()) for rule in rules}


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    return store


async def started(store: EmbeddedStore, *, follows: bool = True) -> Subject:
    subject = Subject(store, follows=follows)
    await subject.acls.start()
    return subject


async def data_of(store: EmbeddedStore, path: str) -> bytes | None:
    node = await store.get(path)
    return None if node is None else node[0]


@on_loop
async def test_nodes_and_notices_have_the_bytes_of_apache_kafka(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject = await started(store)
    assert set(await store.children("/kafka-acl")) == {
        *("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
    }
    errors = await subject.acls.add([Acl(ORDERS, READ), Acl(TEAM, READ), Acl(TEAM, DENIED)])
    assert errors == [None] * 3
    assert await data_of(store, "/kafka-acl/Topic/orders") == READ_BYTES
    both = await data_of(store, "/kafka-acl-extended/prefixed/TransactionalId/team-")
    assert both == (
        READ_BYTES.partition(b"]")[0]
        + b',{"principal":"User:bob","permissionType":"Deny","host":"10.0.0.1","operation":"AlterConfigs"}]'
        + b',"version":1}'
    )
    assert await data_of(store, "/kafka-acl-changes/acl_changes_0000000000") == b"TOPIC:orders"
    assert await data_of(store, "/kafka-acl-extended-changes/acl_changes_0000000000") == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"team-","patternType":"PREFIXED"}'
    )
    await subject.settle()
    await store.close()


@on_loop
async def test_changes_are_in_effect_here_at_once_and_elsewhere_with_the_notice(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject, other = await started(store), await started(store)
    await subject.acls.add([Acl(ORDERS, READ)])
    assert subject.changes == [(ORDERS, (READ,))]
    await other.settle()
    assert other.all() == {Acl(ORDERS, READ)}
    await other.acls.add([Acl(ORDERS, READ)])  # nothing new, so nothing is written
    assert len(await store.children("/kafka-acl-changes")) == 1
    removed = await other.acls.remove([AclFilter(TOPIC, "orders", PatternType.LITERAL)])
    assert removed == [[(Acl(ORDERS, READ), None)]]
    assert await data_of(store, "/kafka-acl/Topic/orders") is None
    await subject.settle()
    assert subject.changes[1:] == [(ORDERS, ())]
    await store.close()


@on_loop
async def test_rules_are_read_at_the_start(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    first = await started(store)
    many = [Acl(Pattern(TOPIC, f"t{index}"), READ) for index in range(250)]
    await first.acls.add([*many, Acl(TEAM, DENIED)])
    await first.settle()
    assert (await started(store)).all() == {*many, Acl(TEAM, DENIED)}
    await store.close()


@on_loop
async def test_of_concurrent_changes_none_is_lost(tmp_path: Path) -> None:
    """Between the read and the write of one broker another writes: by its node, its absence, its removal."""
    store = await opened(tmp_path)
    subject, other = await started(store), await started(store)
    mine = Rule("User:mine", Permission.ALLOW, Operation.READ)
    steps = [
        lambda: other.acls.add([Acl(ORDERS, READ)]),
        lambda: other.acls.add([Acl(ORDERS, DENIED)]),
        lambda: other.acls.remove([AclFilter(TOPIC, "orders", PatternType.LITERAL)]),
    ]
    original = store.multi
    for step in steps:

        async def multi(operations: Any, step: Any = step) -> Any:
            store.multi = original  # type: ignore[method-assign]
            await step()
            return await original(operations)

        store.multi = multi  # type: ignore[method-assign]
        name = f"User:{len(subject.changes)}"
        assert await subject.acls.add([Acl(ORDERS, mine._replace(principal=name))]) == [None]
        assert Acl(ORDERS, mine._replace(principal=name)) in subject.all()
    await subject.settle()
    await other.settle()
    stored = acl_nodes.decode_rules(await data_of(store, "/kafka-acl/Topic/orders") or b"", "orders")
    assert subject.all() == other.all() == {Acl(ORDERS, rule) for rule in stored}
    assert [rule.operation for rule in stored] == [Operation.READ]  # the last add came after the removal
    await store.close()


@on_loop
async def test_filters_that_name_a_pattern_reach_rules_that_are_not_known_here_yet(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject, other = await started(store, follows=False), await started(store)
    await other.acls.add([Acl(ORDERS, READ), Acl(ORDERS._replace(pattern_type=PREFIXED), DENIED)])
    assert subject.all() == set()
    (first, second) = await subject.acls.remove(
        [AclFilter(TOPIC, "orders", PatternType.ANY), AclFilter(TOPIC, "orders", PREFIXED)]
    )
    assert {acl.pattern.pattern_type for acl, _ in first} == {PatternType.LITERAL, PREFIXED}
    assert [acl.rule for acl, _ in second] == [DENIED]
    await other.settle()
    assert other.all() == set()
    await store.close()


@on_loop
async def test_after_an_expired_session_all_rules_are_read_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject, other = await started(store), await started(store)
    await other.acls.add([Acl(ORDERS, READ)])
    await subject.settle()
    await store.set("/kafka-acl/Topic/orders", acl_nodes.encode_rules([DENIED]))  # no notice is left of it
    await store.create("/kafka-acl/Topic/new", READ_BYTES)
    for expired in store.on_session_expired:
        expired()
    await subject.settle()
    assert subject.all() == {Acl(ORDERS, DENIED), Acl(Pattern(TOPIC, "new"), READ)}
    await store.close()


@on_loop
async def test_rules_that_cannot_be_decoded_end_the_start_and_change_nothing_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    subject = await started(store)
    await subject.acls.add([Acl(ORDERS, READ)])
    await store.set("/kafka-acl/Topic/orders", b"{}")
    await store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequential=True)
    await store.create("/kafka-acl-changes/acl_changes_", b"\xff", sequential=True)
    await subject.settle()
    assert subject.all() == {Acl(ORDERS, READ)}
    assert "those of before stay in effect: /kafka-acl/Topic/orders: version" in caplog.text
    assert "A change of access rules cannot be read" in caplog.text
    (error,) = await subject.acls.add([Acl(ORDERS, DENIED)])
    assert error is not None and error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(NodeFormatError, match="/kafka-acl/Topic/orders: version must be int"):
        await started(store)
    await store.close()


@on_loop
async def test_what_no_node_can_hold_is_refused(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject = await started(store)
    refused = [
        Acl(Pattern(ResourceType.CLUSTER, "other"), READ),
        Acl(Pattern(TOPIC, ""), READ),
        Acl(Pattern(ResourceType.GROUP, "a/b"), READ),
        Acl(Pattern(ResourceType.GROUP, ".."), READ),
        Acl(Pattern(ResourceType.GROUP, "a\x01"), READ),
        Acl(ORDERS, READ._replace(principal="alice")),
    ]
    errors = await subject.acls.add([*refused, Acl(ORDERS, READ)])
    assert [error and error.code for error in errors] == [ErrorCode.INVALID_REQUEST] * len(refused) + [None]
    assert all(isinstance(error, KafkaError) and error.message for error in errors[:-1])
    assert await subject.acls.remove([AclFilter(TOPIC, "a/b", PatternType.LITERAL)]) == [[]]
    await subject.settle()
    await store.close()


@on_loop
async def test_folders_removed_by_hand_are_made_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    subject = await started(store)
    await store.delete("/kafka-acl/Topic")
    assert await subject.acls.add([Acl(ORDERS, READ)]) == [None]
    await subject.settle()
    await store.close()


@pytest.mark.parametrize(
    "data",
    [
        *(b"[]", b'{"version":2,"acls":[]}', b'{"version":1}', b'{"version":1,"acls":[1]}'),
        READ_BYTES.replace(b"User:alice", b"alice"),
        READ_BYTES.replace(b'"Read"', b'"Any"'),
        READ_BYTES.replace(b'"Read"', b'"Grow"'),
        READ_BYTES.replace(b'"Allow"', b'"Any"'),
        READ_BYTES.replace(b'"*"', b"1"),
    ],
)
def test_broken_nodes(data: bytes) -> None:
    with pytest.raises(NodeFormatError):
        acl_nodes.decode_rules(data, "node")


def test_an_empty_node_has_no_rules() -> None:
    assert acl_nodes.decode_rules(b"", "node") == ()


def test_notices_of_all_releases() -> None:
    assert acl_nodes.decode_literal_change(b"Topic:a:b") == Pattern(TOPIC, "a:b")
    for pattern in (ORDERS, Pattern(ResourceType.DELEGATION_TOKEN, "*")):
        assert acl_nodes.decode_literal_change(acl_nodes.encode_change(pattern)) == pattern
    assert acl_nodes.decode_extended_change(acl_nodes.encode_change(TEAM)) == TEAM
    for data in (b"a", b"{}", acl_nodes.encode_change(TEAM).replace(b":1,", b":2,"), b'{"version":1}'):
        with pytest.raises(NodeFormatError):
            acl_nodes.decode_extended_change(data)
    with pytest.raises(NodeFormatError, match="resource type 'Queue'"):
        acl_nodes.decode_literal_change(b"Queue:a")
