"""Strangers in great number at the listeners of a secured broker, which serves its good client meanwhile."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiMessage,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from gregor.protocol.sasl.mechanism import SCRAM_SHA_512
from gregor.protocol.sasl.scram import MECHANISMS, ScramClient
from tests.compat.records import until
from tests.support.certificates import Certificates
from tests.support.secured_broker import USER, WAIT_S, SecuredBroker
from tests.support.wire import memory_kb, request_bytes

pytestmark = pytest.mark.very_slow

HALF_OPEN = 500
STOPPED = 200
GUESSES = 300
GUESSED_AT_ONCE = 30
FAILURE_DELAY_S = 0.1
"""The default of connection.failed.authentication.delay.ms."""
DESCRIPTORS = 4096
GROWTH_LIMIT_KB = 100 * 1024
TIMER_S = 0.002
"""Timers of the broker have whole milliseconds."""
TOKEN_BYTES = 100_000_000
PUSHED_BYTES = 20_000_000
PASSWORDS = {"broker": "b"}


@pytest.fixture
def server(tmp_path: Path, certificates: Certificates) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path, certificates, PASSWORDS) as broker:
        broker.add_scram_user(USER, {"SCRAM-SHA-512": "good"})
        yield broker


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(DESCRIPTORS, limits[1])), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def good_config(server: SecuredBroker, certificates: Certificates) -> dict[str, str | int]:
    return {
        "bootstrap.servers": server.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca_file,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": "good",
        "log_level": 0,
    }


class GoodClient:
    """Produces by SASL_SSL, a record after the other, until the end; a context manager."""

    def __init__(self, server: SecuredBroker, certificates: Certificates) -> None:
        self.served = 0
        self.errors: list[KafkaError] = []
        self.peak_kb = memory_kb(server.pid)
        self._pid = server.pid
        self._ended = threading.Event()
        config = good_config(server, certificates)
        admin = AdminClient(config)
        admin.create_topics([NewTopic("good", 1)])["good"].result(WAIT_S)
        self._producer = Producer({**config, "linger.ms": 0})
        self._thread = threading.Thread(target=self._produce)

    def _produce(self) -> None:
        while not self._ended.is_set():
            self._producer.produce("good", b"x" * 1000, on_delivery=self._delivered)
            self._producer.flush(WAIT_S)
            self.peak_kb = max(self.peak_kb, memory_kb(self._pid))

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.served += 1
        else:
            self.errors.append(error)

    def is_served(self) -> None:
        """Wait for further records, which begin after this call."""
        wanted = self.served + 3
        until(lambda: self.served >= wanted or bool(self.errors), "the good client is served")
        assert self.errors == []

    def __enter__(self) -> GoodClient:
        self._thread.start()
        self.is_served()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()


def connected(server: SecuredBroker, listener: str) -> socket.socket:
    port = server.port if listener == "PLAINTEXT" else server.ports[listener]
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def encrypted(server: SecuredBroker, listener: str = "SASL_SSL") -> ssl.SSLSocket:
    return open_context().wrap_socket(connected(server, listener), server_hostname="localhost")


def open_context() -> ssl.SSLContext:
    """Strangers trust everyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def first_flight() -> bytes:
    """Return a ClientHello."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = open_context().wrap_bio(received, sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def end_of(peer: socket.socket) -> bytes:
    """Return what comes until the broker ends the connection; fail if it does not."""
    found = b""
    try:
        while part := peer.recv(65536):
            found += part
    except TimeoutError:
        raise AssertionError(f"the connection is still open after {WAIT_S:.0f} s") from None
    except OSError:
        pass
    return found


def frame(request: ApiMessage, version: int) -> bytes:
    return request_bytes(request, version, 1)


def exchange(peer: socket.socket, data: bytes) -> bytes:
    """Send a request and return the frame of its response."""
    peer.sendall(data)
    with peer.makefile("rb") as answers:
        return answers.read(int.from_bytes(answers.read(4)))


# ---- strangers -----------------------------------------------------------------------------------------------------


def half_open(server: SecuredBroker, opened: contextlib.ExitStack) -> None:
    """Handshakes of TLS that go no further: nothing sent, a part of the first message, all of it."""
    hello = first_flight()
    parts = (b"", hello[:3], hello[: len(hello) // 2], hello)
    for number in range(HALF_OPEN):
        peer = opened.enter_context(connected(server, ("SASL_SSL", "SSL")[number % 2]))
        peer.sendall(parts[number % len(parts)])


def stopped_exchanges(server: SecuredBroker, opened: contextlib.ExitStack) -> None:
    """Exchanges of SASL that stop in the middle."""
    first = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce")
    plain = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0good"), 2)
    for number in range(STOPPED):
        peer = opened.enter_context(encrypted(server))
        match number % 5:
            case 0:
                continue
            case 1:
                exchange(peer, frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            case 2:
                exchange(peer, frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
                peer.sendall(plain[:-3])
            case 3:
                exchange(peer, frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1))
                assert b"r=nonce" in exchange(peer, frame(first, 2))
            case 4:
                exchange(peer, frame(SaslHandshakeRequest(mechanism="PLAIN"), 0))
                peer.sendall(struct.pack(">i", 12) + b"\0alice")


def wrong_passwords(server: SecuredBroker) -> None:
    """Guesses by PLAIN and SCRAM, of known and unknown users; each answer is a refusal that comes after the delay."""

    def authenticate(peer: ssl.SSLSocket, token: bytes) -> SaslAuthenticateResponse:
        answer = exchange(peer, frame(SaslAuthenticateRequest(auth_bytes=token), 1))
        return SaslAuthenticateResponse.decode(answer, 1, 4)[0]

    def guess(number: int) -> float:
        user = (USER, "broker", "nobody")[number % 3]
        with encrypted(server) as peer:
            if number % 2:
                exchange(peer, frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
                token = f"\0{user}\0guess-{number}".encode()
            else:
                client = ScramClient(MECHANISMS[SCRAM_SHA_512], user, f"guess-{number}")
                exchange(peer, frame(SaslHandshakeRequest(mechanism=SCRAM_SHA_512), 1))
                token = client.respond(authenticate(peer, client.first()).auth_bytes) or b""
            sent_s = time.monotonic()
            refusal = authenticate(peer, token)
            refused_s = time.monotonic()
            assert (refusal.error_code, refusal.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
            assert end_of(peer) == b""
        return refused_s - sent_s

    with ThreadPoolExecutor(GUESSED_AT_ONCE) as pool:
        waits_s = list(pool.map(guess, range(GUESSES)))
    assert min(waits_s) > FAILURE_DELAY_S - TIMER_S, sorted(waits_s)[:5]


def push(peer: socket.socket, head: bytes) -> None:
    """Send a frame of 100 MB as far as the broker receives it; it must end the connection."""
    with contextlib.suppress(OSError):
        peer.sendall(head)
        for _ in range(PUSHED_BYTES // 65536):
            peer.sendall(bytes(65536))
    end_of(peer)


def giant_tokens(server: SecuredBroker) -> None:
    framed = struct.pack(">ihhih", TOKEN_BYTES, ApiKey.SASL_AUTHENTICATE, 1, 1, -1) + struct.pack(">i", TOKEN_BYTES)
    for version, head in ((1, framed), (0, struct.pack(">i", TOKEN_BYTES)), (None, framed)):
        for _ in range(5):
            with encrypted(server) as peer:
                if version is not None:
                    exchange(peer, frame(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version))
                push(peer, head)


def wrong_kinds_of_ports(server: SecuredBroker) -> None:
    """A client in clear text at TLS, TLS at clear text, and other protocols at both."""
    request = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    for _ in range(20):
        for data in (request, b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", os.urandom(300), bytes(300)):
            with connected(server, "SASL_SSL") as peer:
                peer.sendall(data)
                assert b"PLAIN" not in end_of(peer)
        with connected(server, "PLAINTEXT") as peer:
            peer.sendall(first_flight())
            assert end_of(peer) == b""


def old_protocols(server: SecuredBroker) -> None:
    """SSL 2 and 3 as bytes, TLS 1.0 and 1.1 by OpenSSL, where it still has them."""
    v2 = bytes((0x80, 0x2E, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10)) + bytes(37)
    v3 = b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(32) + b"\x00\x00\x04\x00\x0a\x00\x05\x01\x00"
    for hello in (v2, v3):
        with connected(server, "SASL_SSL") as peer:
            peer.sendall(hello)
            assert end_of(peer)[:1] in (b"", b"\x15"), "no other answer than an alert"
    context = open_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with connected(server, "SASL_SSL") as peer, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(peer, server_hostname="localhost")


def renegotiation(server: SecuredBroker) -> None:
    """A client of TLS 1.2 that begins a second handshake within the first connection."""
    address = server.address("SASL_SSL")
    command = ["openssl", "s_client", "-tls1_2", "-connect", address]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=WAIT_S)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert "RENEGOTIATING" in said and "no renegotiation" in said, said


def unauthenticated_requests(server: SecuredBroker) -> None:
    """Every API but the three of the handshake ends the connection without an answer, and so do numbers of none."""
    for key in (*ApiKey, max(ApiKey) + 1, 0x7FFF, -1):
        if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            continue
        with encrypted(server) as peer:
            peer.sendall(struct.pack(">ihhih", 10, key, 0, 1, -1))
            assert end_of(peer) == b"", key


# ---- the test ------------------------------------------------------------------------------------------------------


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_good_client_is_served_beside_strangers(server: SecuredBroker, certificates: Certificates) -> None:
    with GoodClient(server, certificates) as good, contextlib.ExitStack() as opened:
        memory_before, files_before = memory_kb(server.pid), open_files(server.pid)
        half_open(server, opened)
        until(lambda: open_files(server.pid) >= files_before + HALF_OPEN, "all strangers are accepted")
        good.is_served()
        stopped_exchanges(server, opened)
        good.is_served()
        wrong_passwords(server)
        good.is_served()
        giant_tokens(server)
        good.is_served()
        wrong_kinds_of_ports(server)
        old_protocols(server)
        renegotiation(server)
        unauthenticated_requests(server)
        good.is_served()
        # The good client of tomorrow is served, too: a new connection beside all of them.
        newcomer = AdminClient(good_config(server, certificates))
        assert newcomer.list_topics(timeout=WAIT_S).topics.keys() == {"good"}
        opened.close()
        until(lambda: open_files(server.pid) <= files_before + 5, "the strangers' descriptors are closed")
        good.is_served()
        growth_kb = max(good.peak_kb, memory_kb(server.pid)) - memory_before
        assert growth_kb <= GROWTH_LIMIT_KB
    log = server.log()
    assert "Traceback" not in log
    assert "larger than sasl.server.max.receive.size" in log
    assert log.count("is unknown or the password is wrong") == GUESSES
