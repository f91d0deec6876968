"""Options of Spark's connector that reach the Kafka client: seen in the requests that it sends."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import FetchRequest, RequestHeader, request_header_version
from gregor.spark_jobs.sources import read_topic
from tests.spark_jobs.topics import Topics
from tests.support.processes import BrokerProcess, free_port

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.compat]

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
SASL_AUTHENTICATION_FAILED = 58
REFUSAL = "nobody of that name here"


def frame_of(connection: socket.socket) -> bytes:
    """One request or answer, with its length; empty at the end."""
    data = b""
    size = SIZE_BYTES
    while len(data) < size:
        if not (piece := connection.recv(size - len(data))):
            return b""
        data += piece
        if len(data) == SIZE_BYTES:
            size += int.from_bytes(data)
    return data


class Serving:
    """Accepts connections, each with a thread of its own. A context manager."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.serve(connection)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()


class Tap(Serving):
    """In front of a broker: notes the isolation level of every Fetch request."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.isolation_levels: list[int] = []
        self._broker_port = broker_port
        super().__init__(port)

    def serve(self, connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
            while request := frame_of(connection):
                key, version = struct.unpack_from(">hh", request, SIZE_BYTES)
                if key == ApiKey.FETCH:
                    header_version = request_header_version(key, version)
                    _, position = RequestHeader.decode(memoryview(request), header_version, SIZE_BYTES)
                    fetch, _ = FetchRequest.decode(memoryview(request), version, position)
                    self.isolation_levels.append(fetch.isolation_level)
                broker.sendall(request)
                connection.sendall(frame_of(broker))


class Doorkeeper(Serving):
    """Speaks no more of the protocol than SASL needs, and refuses everybody."""

    def __init__(self) -> None:
        self.mechanisms: list[str] = []
        self.tokens: list[bytes] = []
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        while request := frame_of(connection):
            key, version, correlation_id, name_bytes = struct.unpack_from(">hhih", request, SIZE_BYTES)
            body = request[SIZE_BYTES + 10 + max(0, name_bytes) :]
            answer = self._answer(key, version, body)
            connection.sendall(struct.pack(">ii", 4 + len(answer), correlation_id) + answer)

    def _answer(self, key: int, version: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            offered = ((API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 1, 1), (SASL_AUTHENTICATE, 0, 0), (3, 0, 9))
            ranges = b"".join(struct.pack(">hhh", *one) for one in offered)
            return struct.pack(">hi", 35 if version else 0, len(offered)) + ranges  # 35: only version 0 is understood
        if key == SASL_HANDSHAKE:
            self.mechanisms.append(body[2:].decode())
            return struct.pack(">hih", 0, 1, len(body) - 2) + body[2:]
        if key == SASL_AUTHENTICATE:
            self.tokens.append(body[4:])
            text = REFUSAL.encode()
            return struct.pack(">hh", SASL_AUTHENTICATION_FAILED, len(text)) + text + struct.pack(">i", 0)
        raise OSError(f"request {key} before any authentication")


@pytest.fixture
def tap(tmp_path: Path) -> Iterator[Tap]:
    """A broker that clients reach through it alone."""
    port = free_port()
    with (
        BrokerProcess(tmp_path, {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as broker,
        Tap(port, broker.port) as tap,
    ):
        assert isinstance(tap, Tap)
        yield tap


@pytest.mark.parametrize(("options", "level"), [({}, 0), ({"kafka.isolation.level": "read_committed"}, 1)])
def test_isolation_level_is_that_of_the_requests(
    spark: SparkSession, tap: Tap, options: dict[str, str], level: int
) -> None:
    topics = Topics(f"127.0.0.1:{tap.port}")
    topic = topics.create()
    topics.produce(topic, ["a", "b"])
    assert read_topic(spark, topics.bootstrap, topic, options).count() == 2
    assert set(tap.isolation_levels) == {level}


def test_sasl_options_are_those_of_the_client(spark: SparkSession) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{login} username="anna" password="secret";',
    }
    with Doorkeeper() as door:
        assert isinstance(door, Doorkeeper)
        with pytest.raises(Exception, match=REFUSAL):
            read_topic(spark, f"127.0.0.1:{door.port}", "any", options).count()
        assert set(door.mechanisms) == {"PLAIN"}
        assert set(door.tokens) == {b"\0anna\0secret"}
