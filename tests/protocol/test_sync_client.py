"""gregor.protocol.sync_client: the socket around the client's protocol, against one that answers in any way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gregor.protocol.errors import MalformedMessage
from gregor.protocol.messages import ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse, ResponseHeader
from gregor.protocol.sync_client import ConnectionEnded, SyncConnection

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def response(correlation_id: int, error_code: int) -> bytes:
    data = ResponseHeader(correlation_id=correlation_id).encode(0) + HeartbeatResponse(error_code=error_code).encode(1)
    return len(data).to_bytes(4) + data


@contextmanager
def broker(*pieces: bytes, requests: int = 1, then_end: bool = False) -> Iterator[SyncConnection]:
    """A connection to one that reads so many requests and sends these pieces."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as received:
            for _ in range(requests):
                received.read(int.from_bytes(received.read(4)))
            for piece in pieces:
                connection.sendall(piece)
            if not then_end:
                left.wait(20)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with SyncConnection("127.0.0.1", listener.getsockname()[1], "me", 20, 20) as connection:
            yield connection
    finally:
        left.set()
        thread.join(20)
        listener.close()


def test_a_request_and_its_response() -> None:
    with broker(response(1, 27)) as connection:
        assert connection.exchange(REQUEST, 1) == HeartbeatResponse(error_code=27)


def test_a_response_in_pieces() -> None:
    data = response(1, 27)
    with broker(*(data[at : at + 1] for at in range(len(data)))) as connection:
        assert connection.exchange(REQUEST, 1) == HeartbeatResponse(error_code=27)


def test_several_requests_before_the_first_response() -> None:
    with broker(response(1, 1) + response(2, 2), requests=2) as connection:
        sent = [connection.send(REQUEST, 1), connection.send(REQUEST, 1)]
        assert [connection.receive() for _ in sent] == [
            (sent[0], HeartbeatResponse(error_code=1)),
            (sent[1], HeartbeatResponse(error_code=2)),
        ]


@pytest.mark.parametrize("sent", [b"", b"\0\0", response(1, 0)[:-1]])
def test_an_end_before_the_response_is_whole(sent: bytes) -> None:
    with broker(sent, then_end=True) as connection, pytest.raises(ConnectionEnded):
        connection.exchange(REQUEST, 1)


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
        (b"HTTP/1.1 400 Bad Request", "a response of 1213486160 bytes"),
        (response(5, 0), "answers request 5, which was not sent"),
        (b"\0\0\0\5\0\0\0\1a", "HeartbeatResponse"),
    ],
)
def test_what_no_broker_says(sent: bytes, cause: str) -> None:
    with broker(sent) as connection, pytest.raises(MalformedMessage, match=cause):
        connection.exchange(REQUEST, 1)


def test_a_response_of_an_earlier_request_is_not_that_of_this_one() -> None:
    with broker(response(1, 0), requests=2) as connection:
        connection.send(REQUEST, 1)
        with pytest.raises(MalformedMessage, match="answers request 1, not 2"):
            connection.exchange(REQUEST, 1)


def test_a_broker_that_keeps_silent() -> None:
    with broker() as connection:
        connection.socket.settimeout(0.01)
        with pytest.raises(TimeoutError):
            connection.exchange(REQUEST, 1)


def versions_response(correlation_id: int, version: int, error_code: int) -> bytes:
    offered = [ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=4)] if not error_code else []
    answer = ApiVersionsResponse(error_code=error_code, api_keys=offered)
    data = ResponseHeader(correlation_id=correlation_id).encode(0) + answer.encode(version)
    return len(data).to_bytes(4) + data


def test_versions_of_a_broker() -> None:
    with broker(versions_response(1, 3, 0)) as connection:
        assert connection.api_versions("me", "1").api_keys[0].max_version == 4


def test_versions_of_a_broker_that_knows_only_the_first_request_for_them() -> None:
    with broker(versions_response(1, 0, 35), versions_response(2, 0, 0)) as connection:
        assert connection.api_versions("me", "1").api_keys[0].max_version == 4


@pytest.mark.parametrize("host", ["kafka..example", "h" * 64])
def test_a_text_that_is_no_host_is_an_unknown_one(host: str) -> None:
    with pytest.raises(socket.gaierror, match=f"{host} is not the name of a host"):
        SyncConnection(host, 9092, None, 1, 1)
