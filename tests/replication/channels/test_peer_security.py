"""Connections to a broker that requires authentication: login, failures, and authentication again (KIP-368)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.channel_security import ChannelSecurity
from gregor.protocol.messages import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ResponseHeader,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from gregor.protocol.sasl.plain import PlainClient
from gregor.replication.channels.peer import Peer, PeerError
from tests.replication.fakes import on_loop

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 3, 17, 18, 36
VERSIONS = {METADATA: (1, 8), HANDSHAKE: (0, 1), API_VERSIONS: (0, 0), AUTHENTICATE: (0, 1)}
PASSWORD = "not-for-any-log"


class FakeBroker:
    """Serves one mechanism; its sessions last `lifetime_ms`."""

    def __init__(self, lifetime_ms: int = 0, mechanism: str = "PLAIN", password: str = PASSWORD) -> None:
        self.keys: list[int] = []
        self.served: set[asyncio.Task[None] | None] = set()
        self._lifetime_ms = lifetime_ms
        self._mechanism = mechanism
        self._password = password

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                key, version, correlation_id = struct.unpack_from(">hhi", data)
                self.keys.append(key)
                body = ResponseHeader(correlation_id=correlation_id).encode(0) + self._body(key, version, data)
                writer.write(struct.pack(">i", len(body)) + body)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def _body(self, key: int, version: int, data: bytes) -> bytes:
        if key == API_VERSIONS:
            ranges = [
                ApiVersionsResponse.ApiVersion(api_key=k, min_version=a, max_version=b)
                for k, (a, b) in VERSIONS.items()
            ]
            return ApiVersionsResponse(api_keys=ranges).encode(version)
        if key == HANDSHAKE:
            code = 0 if self._mechanism == "PLAIN" else 33
            return SaslHandshakeResponse(error_code=code, mechanisms=[self._mechanism]).encode(version)
        if key == AUTHENTICATE:
            (client_id_size,) = struct.unpack_from(">h", data, 8)
            token = SaslAuthenticateRequest.decode(data, version, 10 + client_id_size)[0].auth_bytes
            right = bytes(token) == f"\0broker\0{self._password}".encode()
            return SaslAuthenticateResponse(
                error_code=0 if right else 58,
                error_message=None if right else "Authentication failed: Invalid username or password",
                session_lifetime_ms=self._lifetime_ms,
            ).encode(version)
        return MetadataResponse(controller_id=7).encode(version)


@asynccontextmanager
async def peer_of(broker: FakeBroker) -> AsyncIterator[Peer]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    security = ChannelSecurity("SASL_PLAINTEXT", new_mechanism=lambda host: PlainClient("broker", PASSWORD))
    peer = Peer(*server.sockets[0].getsockname()[:2], "test", 30_000, LoopGate(), security=security)
    try:
        yield peer
    finally:
        peer.close()
        server.close()
        await server.wait_closed()
        await asyncio.wait([task for task in broker.served if task is not None], timeout=30)


@on_loop
async def test_peer_authenticates_once_per_connection() -> None:
    broker = FakeBroker()
    async with peer_of(broker) as peer:
        for _ in range(2):
            assert (await peer.send(MetadataRequest())).controller_id == 7
        assert broker.keys == [API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, METADATA]
        peer.close()
        await peer.send(MetadataRequest())
        assert broker.keys[5:] == [API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA]


@pytest.mark.parametrize(
    ("broker", "text"),
    [
        (lambda: FakeBroker(password="another"), "SASL/PLAIN: Authentication failed: Invalid username or password"),
        (lambda: FakeBroker(mechanism="GSSAPI"), "has no SASL mechanism PLAIN.*but: GSSAPI"),
    ],
)
@on_loop
async def test_failed_authentication_is_an_error_of_the_connection(broker: Callable[[], FakeBroker], text: str) -> None:
    async with peer_of(broker()) as peer:
        with pytest.raises(PeerError, match=text) as failed:
            await peer.send(MetadataRequest())
        assert PASSWORD not in str(failed.value)


@on_loop
async def test_peer_authenticates_again_before_the_session_ends() -> None:
    broker = FakeBroker(lifetime_ms=1)
    async with peer_of(broker) as peer:
        async with asyncio.timeout(60):
            while broker.keys.count(HANDSHAKE) < 2:
                await peer.send(MetadataRequest())
        assert broker.keys[-3:] == [HANDSHAKE, AUTHENTICATE, METADATA]
        assert broker.keys.count(API_VERSIONS) == 1


@on_loop
async def test_conversation_continues_after_authentication() -> None:
    broker = FakeBroker(lifetime_ms=1)
    async with peer_of(broker) as peer:
        answered: list[int] = []

        def following(response: MetadataResponse) -> MetadataRequest | None:
            answered.append(response.controller_id)
            return MetadataRequest() if broker.keys.count(HANDSHAKE) < 3 else None

        async with asyncio.timeout(60):
            await peer.converse(MetadataRequest(), 1, following)
        assert broker.keys.count(METADATA) == len(answered)
        assert broker.keys.count(API_VERSIONS) == 1
