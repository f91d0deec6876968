"""Delegation tokens in their nodes: life, ends, notices, and who may change them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.principal import USER, Principal
from gregor.protocol.sasl.scram import MECHANISMS, ScramCredential, credential_of, salted_password
from gregor.replication.entities.tokens import (
    CHANGES,
    TOKENS,
    DelegationTokens,
    Token,
    TokenTimes,
    credentials_of,
    decode_token,
    encode_token,
)
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.metadata_store import ANY_VERSION, Operation, Result, SessionExpired, StoreFull
from gregor.replication.store.nodes import NodeFormatError
from gregor.replication.store.time_limit import TimeLimit
from tests.replication.fakes import on_loop

ALICE, BOB, EVE = (Principal(USER, name) for name in ("alice", "bob", "eve"))
SCRAM = MECHANISMS["SCRAM-SHA-256"]
HOUR_MS = 3_600_000
LIMIT_S = 60.0


async def here(function: Callable[[str], dict[str, ScramCredential]], password: str) -> dict[str, ScramCredential]:
    return function(password)


class Subject:
    """The tokens as one broker has them."""

    def __init__(self, store: EmbeddedStore, secret: str | None = "key") -> None:
        self.now_ms = 1_000_000
        self.tasks: list[asyncio.Task[None]] = []
        times = TokenTimes(10 * HOUR_MS, HOUR_MS)
        self.on_thread: Any = here
        self.tokens = DelegationTokens(
            store, secret, times, lambda: self.now_ms, self._spawn, lambda *call: self.on_thread(*call)
        )

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def settle(self) -> None:
        while self.tasks:
            await self.tasks.pop(0)


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    return store


async def started(store: EmbeddedStore) -> Subject:
    subject = Subject(store)
    await subject.tokens.start()
    return subject


def test_bytes_of_a_node() -> None:
    token = Token("id", ALICE, BOB, (Principal(USER, "e v*"),), 1, 2, 3)
    data = encode_token(token)
    assert data == (
        b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Abob","renewers":["User%3Ae%20v%2A"],'
        b'"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id"}'
    )
    assert decode_token(data) == token
    old = data.replace(b'"version":3', b'"version":1').replace(b'"tokenRequester":"User%3Abob",', b"")
    assert decode_token(old) == token._replace(requester=ALICE)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"version":4}', b'{"owner":"x"}', b"[" * 100_000])
def test_broken_nodes(data: bytes) -> None:
    with pytest.raises(NodeFormatError):
        decode_token(data)


def test_unknown_version_is_broken() -> None:
    data = encode_token(Token("id", ALICE, ALICE, (), 1, 2, 3)).replace(b'"version":3', b'"version":4')
    with pytest.raises(NodeFormatError):
        decode_token(data)


def test_credential_is_that_of_the_secret_in_base64() -> None:
    one = credentials_of("pw")["SCRAM-SHA-256"]
    assert one == credential_of(SCRAM, one.salt, salted_password(SCRAM, "pw", one.salt, 4096), 4096)


@on_loop
async def test_life_of_a_token_on_two_brokers(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    mine, other = await started(store), await started(store)
    token = await mine.tokens.create(ALICE, ALICE, (BOB,), -1)
    assert (token.expires_ms - mine.now_ms, token.max_ms - mine.now_ms) == (HOUR_MS, 10 * HOUR_MS)
    async with asyncio.timeout(LIMIT_S):
        while other.tokens.find("SCRAM-SHA-256", token.token_id) is None:
            await asyncio.sleep(0.001)
            await other.settle()
    known = other.tokens.find("SCRAM-SHA-256", token.token_id)
    assert known is not None
    assert (known.principal_name, known.expires_at_ms) == ("alice", token.expires_ms)
    secret = mine.tokens.hmac_of(token.token_id)
    assert base64.b64encode(secret).decode() == base64.b64encode(other.tokens.hmac_of(token.token_id)).decode()
    assert await mine.tokens.renew(BOB, secret, 2 * HOUR_MS) == mine.now_ms + 2 * HOUR_MS
    assert await mine.tokens.renew(ALICE, secret, 99 * HOUR_MS) == token.max_ms
    assert await mine.tokens.expire(ALICE, secret, HOUR_MS) == mine.now_ms + HOUR_MS
    mine.now_ms += HOUR_MS + 1
    assert mine.tokens.find("SCRAM-SHA-256", token.token_id) is None
    with pytest.raises(KafkaError) as refused:
        await mine.tokens.renew(ALICE, secret, -1)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    await mine.tokens.remove_expired()
    await other.tokens.start()
    assert (mine.tokens.of_owners(None), other.tokens.of_owners(None)) == ([], [])
    assert await store.children(TOKENS) == []
    await store.close()


@on_loop
async def test_tokens_by_owner_and_their_end(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = await started(store)
    first = await one.tokens.create(ALICE, BOB, (), 5)
    second = await one.tokens.create(BOB, BOB, (EVE,), 0)
    assert first.max_ms == first.expires_ms == one.now_ms + 5
    assert one.tokens.of_owners([ALICE]) == [first]
    assert one.tokens.of_owners([EVE]) == [second]
    assert one.tokens.of_owners([]) == []
    assert one.tokens.of_owners(None) == [first, second]
    with pytest.raises(KafkaError) as refused:
        await one.tokens.expire(ALICE, one.tokens.hmac_of(second.token_id), -1)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    await one.tokens.expire(EVE, one.tokens.hmac_of(second.token_id), -1)
    with pytest.raises(KafkaError) as refused:
        await one.tokens.renew(EVE, one.tokens.hmac_of(second.token_id), -1)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    await store.close()


@on_loop
async def test_tokens_of_many_owners_cost_a_step_for_each(tmp_path: Path) -> None:
    comparisons = 0

    class Counted(Principal):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return super().__eq__(other)

        __hash__ = Principal.__hash__

    store = await opened(tmp_path)
    one = await started(store)
    tokens = [await one.tokens.create(ALICE, ALICE, (BOB,), -1) for _ in range(3)]
    assert one.tokens.of_owners([*(Counted(USER, f"u{number}") for number in range(1000)), BOB]) == tokens
    assert comparisons < 100
    await store.close()


@on_loop
async def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = Subject(store, None)
    await one.tokens.start()
    assert await store.exists(TOKENS) is None
    with pytest.raises(KafkaError) as refused:
        await one.tokens.create(ALICE, ALICE, (), -1)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    await store.close()


class FailingOnce(EmbeddedStore):
    """Refuses the next change of a node."""

    failure: Exception | None = None

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        self._fail()
        return await super().multi(operations)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._fail()
        await super().delete(path, version)


@on_loop
async def test_a_removal_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    store = FailingOnce(str(tmp_path / FILE_NAME))
    await store.start()
    one = await started(store)
    token = await one.tokens.create(ALICE, ALICE, (), -1)
    secret = one.tokens.hmac_of(token.token_id)
    store.failure = StoreFull(TOKENS)
    with pytest.raises(StoreFull):
        await one.tokens.expire(ALICE, secret, -1)
    assert one.tokens.of_owners(None) == [token]
    store.failure = SessionExpired(TOKENS)
    await TimeLimit().within(lambda: one.tokens.expire(ALICE, secret, -1))
    assert (one.tokens.of_owners(None), await store.children(TOKENS)) == ([], [])
    assert len(await store.children(CHANGES)) == 2
    await store.close()


@on_loop
async def test_a_removal_notifies_also_where_another_broker_has_deleted_the_node(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = Subject(store)  # it has not read the notices yet
    token = await one.tokens.create(ALICE, ALICE, (), -1)
    await store.delete(f"{TOKENS}/{token.token_id}")
    await one.tokens.expire(ALICE, one.tokens.hmac_of(token.token_id), -1)
    assert one.tokens.of_owners(None) == []
    assert len(await store.children(CHANGES)) == 2
    await store.close()


@on_loop
async def test_a_token_that_another_broker_has_removed_cannot_be_renewed(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    one = Subject(store)  # it has not read the notices yet
    token = await one.tokens.create(ALICE, ALICE, (), -1)
    await store.delete(f"{TOKENS}/{token.token_id}")
    with pytest.raises(KafkaError) as refused:
        await one.tokens.renew(ALICE, one.tokens.hmac_of(token.token_id), -1)
    assert refused.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert one.tokens.of_owners(None) == []
    await store.close()


@on_loop
async def test_a_change_makes_the_parent_of_notices_anew(tmp_path: Path) -> None:
    """An operator may delete it."""
    store = await opened(tmp_path)
    one = await started(store)
    await store.delete(CHANGES)
    token = await one.tokens.create(ALICE, ALICE, (), -1)
    assert one.tokens.of_owners(None) == [token]
    assert len(await store.children(CHANGES)) == 1
    await store.close()


@on_loop
async def test_a_token_that_is_removed_while_it_is_hashed_stays_removed(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    mine, other = await started(store), Subject(store)
    hashing, hashed = asyncio.Event(), asyncio.Event()

    async def on_thread(function: Callable[[str], dict[str, ScramCredential]], password: str) -> Any:
        hashing.set()
        await hashed.wait()
        return function(password)

    other.on_thread = on_thread
    await other.tokens.start()
    async with asyncio.timeout(LIMIT_S):
        token = await mine.tokens.create(ALICE, ALICE, (), -1)
        await hashing.wait()
        read = len(other.tasks)
        await mine.tokens.expire(ALICE, mine.tokens.hmac_of(token.token_id), -1)
        while len(other.tasks) == read:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(20):  # the read for the second notice goes as far as it can
            await asyncio.sleep(0)
        hashed.set()
        await other.settle()
    assert other.tokens.of_owners(None) == []
    await store.close()


@on_loop
async def test_a_node_with_the_id_of_another_token_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    await store.create(f"{TOKENS}/a", encode_token(Token("b", ALICE, ALICE, (), 1, 2, 3)), make_parents=True)
    one = await started(store)
    assert one.tokens.of_owners(None) == []
    assert "The node of the delegation token a is left out: a delegation token with the id of another" in caplog.text
    await store.close()
