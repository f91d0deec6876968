"""A broker with a SASL listener over real sockets: what it serves before authentication, and raw tokens."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.security import strangers
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.protocol.client import version_ranges
from gregor.protocol.messages import (
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    CreateDelegationTokenRequest,
    DescribeUserScramCredentialsRequest,
    MetadataRequest,
    ResponseHeader,
    SaslHandshakeRequest,
    response_class,
    response_header_version,
)
from gregor.protocol.sasl.login import login
from gregor.protocol.sasl.mechanism import AuthenticationFailed, ClientMechanism
from gregor.protocol.sasl.plain import PlainClient
from gregor.protocol.sasl.scram import MECHANISMS, ScramClient, salted_password
from tests.broker.harness import LIMIT_S, QUICK, request_frame
from tests.support.fake_gssapi import fake_gssapi

SETTINGS = {
    **QUICK,
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": "key",
    "listener.name.sasl_plaintext.sasl.server.max.receive.size": "5000",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'x.PlainLoginModule required username="broker" password="b" user_broker="b" user_alice="s3cret";'
    ),
}


class Client:
    """Requests and answers over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Any, version: int) -> Any:
        self.writer.write(request_frame(request, version))
        frame = await self.frame()
        _, position = ResponseHeader.decode(frame, response_header_version(request.API_KEY, version))
        response: Any = response_class(request.API_KEY)
        return response.decode(frame, version, position)[0]

    async def frame(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def log_in(self, mechanism: ClientMechanism) -> None:
        steps = login(mechanism, version_ranges(await self.ask(ApiVersionsRequest(), 0)))
        step = next(steps)
        while True:
            answer = await self.ask(*step)
            try:
                step = steps.send(answer)
            except StopIteration:
                return

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


def serve(folder: Path, check: Callable[[Callable[[], Awaitable[Client]]], Awaitable[None]]) -> None:
    """Run `check` beside a broker; it connects as often as it calls its argument."""

    async def run() -> None:
        server = Server(BrokerConfig({**SETTINGS, "log.dirs": str(folder)}))
        await server.start()
        writers = []

        async def connect() -> Client:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.info.listeners[0][2])
            writers.append(writer)
            return Client(reader, writer)

        try:
            async with asyncio.timeout(LIMIT_S):
                await check(connect)
        finally:
            for writer in writers:
                writer.close()
            await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("cause", ["no package", "no key"])
def test_broker_that_can_authenticate_no_client_of_kerberos_does_not_start(tmp_path: Path, cause: str) -> None:
    settings = {
        **QUICK,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            'x.Krb5LoginModule required useKeyTab=true keyTab="/no/keytab" principal="kafka/a@R";'
        ),
    }
    expected = {
        "no package": r"^sasl.enabled.mechanisms=GSSAPI: .* install it with: pip install 'gregor\[kerberos\]'",
        "no key": r"^listener.name.sasl_plaintext.gssapi.sasl.jaas.config=\(hidden\): no client could authenticate",
    }
    with fake_gssapi(cause == "no key"), pytest.raises(ConfigError, match=expected[cause]):
        asyncio.run(Server(BrokerConfig(settings)).start())


def test_nothing_is_served_before_authentication(tmp_path: Path) -> None:
    async def check(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
        client.writer.write(request_frame(MetadataRequest(topics=None), 9))
        assert await client.ended()
        client = await connect()
        client.writer.write(struct.pack(">ihhi", 100_000_000, 36, 2, 1))  # a token of 100 MB
        assert await client.ended()
        client = await connect()
        assert (await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)).error_code == 33
        assert await client.ended()
        client = await connect()
        with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
            await client.log_in(PlainClient("alice", "wrong"))
        assert await client.ended()
        client = await connect()
        await client.log_in(PlainClient("alice", "s3cret"))
        assert (await client.ask(MetadataRequest(topics=[]), 9)).brokers

    serve(tmp_path, check)


def test_beyond_the_limit_of_unfinished_exchanges_the_oldest_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 3)

    async def check(connect: Callable[[], Awaitable[Client]]) -> None:
        good = await connect()
        await good.log_in(PlainClient("alice", "s3cret"))
        stopped = []
        for _ in range(5):
            stopped.append(await connect())
            assert (await stopped[-1].ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        assert [await one.ended() for one in stopped[:2]] == [True, True]
        assert caplog.text.count("3 other authentications are unfinished") == 2
        late = await connect()
        await late.log_in(PlainClient("alice", "s3cret"))
        assert await stopped[2].ended()
        for one in (good, late):
            assert (await one.ask(MetadataRequest(topics=[]), 9)).brokers
        for one in stopped[3:]:
            assert (await one.ask(ApiVersionsRequest(), 0)).error_code == 0

    serve(tmp_path, check)


def test_scram_user_and_delegation_token(tmp_path: Path) -> None:
    scram = MECHANISMS["SCRAM-SHA-512"]
    salted = salted_password(scram, "pw", b"salt", 4096)

    async def check(connect: Callable[[], Awaitable[Client]]) -> None:
        admin = await connect()
        await admin.log_in(PlainClient("alice", "s3cret"))
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="bob", mechanism=2, iterations=4096, salt=b"salt", salted_password=salted
        )
        answer = await admin.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        assert [(one.user, one.error_code) for one in answer.results] == [("bob", 0)]
        users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in ("bob", "eve")]
        found = (await admin.ask(DescribeUserScramCredentialsRequest(users=users), 0)).results
        assert [(one.user, one.error_code) for one in found] == [("bob", 0), ("eve", 91)]
        assert [(one.mechanism, one.iterations) for one in found[0].credential_infos] == [(2, 4096)]
        bob = await connect()
        await bob.log_in(ScramClient(scram, "bob", "pw"))
        wanted = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1)
        token = await bob.ask(wanted, 3)
        assert (token.error_code, token.principal_name) == (0, "bob")
        other = await connect()
        secret = base64.b64encode(token.hmac).decode()
        await other.log_in(ScramClient(scram, token.token_id, secret, is_token=True))
        assert (await other.ask(wanted, 3)).error_code == 64  # a token makes no further tokens

    serve(tmp_path, check)


def test_request_behind_the_last_raw_token_in_the_same_bytes(tmp_path: Path) -> None:
    """A client of GSSAPI has no response to its last token to wait for."""

    async def check(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        assert (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
        token = b"\0alice\0s3cret"
        client.writer.write(len(token).to_bytes(4) + token + request_frame(ApiVersionsRequest(), 0))
        assert await client.frame() == b""
        assert (await client.frame())[4:6] == bytes(2)
        assert (await client.ask(MetadataRequest(topics=None), 9)).brokers

    serve(tmp_path, check)


def test_raw_tokens_of_handshake_version_0(tmp_path: Path) -> None:
    async def check(connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        assert (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
        token = b"\0alice\0s3cret"
        client.writer.write(struct.pack(">i", len(token)) + token[:3])
        await client.writer.drain()
        client.writer.write(token[3:])
        assert await client.frame() == b""
        assert (await client.ask(MetadataRequest(topics=[]), 1)).brokers
        for size, rest in ((1, b"x"), (-1, b""), (5001, b"")):
            client = await connect()
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            client.writer.write(struct.pack(">i", size) + rest)
            assert await client.ended()

    serve(tmp_path, check)
