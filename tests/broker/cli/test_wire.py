"""The small client of the command line, against sockets that send wrong answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gregor.broker.cli import wire
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.messages import (
    ApiVersionsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    MetadataResponse,
    ResponseHeader,
)

Answer = Callable[[int, int, int], bytes | None]
"""From api key, version and correlation id the body of a frame; None ends the connection."""


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Yield HOST:PORT of a server that answers each request with `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(ConnectionResetError), connection, connection.makefile("rb") as requests:
                while len(size := requests.read(4)) == 4:
                    frame = requests.read(int.from_bytes(size))
                    body = answer(*struct.unpack_from(">hhi", frame))
                    if body is None:
                        break
                    connection.sendall(body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        assert not thread.is_alive(), "a connection was left open"


def frame(correlation_id: int, body: bytes, header_version: int = 0) -> bytes:
    data = ResponseHeader(correlation_id=correlation_id).encode(header_version) + body
    return len(data).to_bytes(4) + data


def versions(*keys: tuple[int, int, int]) -> ApiVersionsResponse:
    made = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in keys]
    return ApiVersionsResponse(api_keys=made)


def broker(*keys: tuple[int, int, int], brokers: Sequence[MetadataResponse.MetadataResponseBroker] = ()) -> Answer:
    """Support Metadata 1 and these APIs; the metadata has these brokers."""

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        if key == 18:
            return frame(correlation_id, versions((3, 1, 1), *keys).encode(0))
        if key == 3:
            return frame(correlation_id, MetadataResponse(controller_id=4, brokers=list(brokers)).encode(version))
        return None

    return answer


def test_apis_and_versions_that_a_broker_lacks() -> None:
    with answering(broker((21, 0, 2))) as address, WireClient(address) as client:
        assert client.controller_id == 4 and client.brokers == {}
        with pytest.raises(CommandError, match="does not support DESCRIBE_LOG_DIRS"):
            client.send(DescribeLogDirsRequest())
        with pytest.raises(CommandError, match="there is no broker 9"):
            client.send(DescribeLogDirsRequest(), 9)
    later = pytest.raises(CommandError, match="in versions 90 to 91, this command needs")
    with answering(broker((35, 90, 91))) as address, WireClient(address) as client, later:
        client.send(DescribeLogDirsRequest())
    gone = pytest.raises(CommandError, match="closed the connection")
    with answering(broker((35, 1, 1))) as address, WireClient(address) as client, gone:
        client.send(DescribeLogDirsRequest(topics=None))


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (lambda key, version, correlation_id: None, "closed the connection"),
        (lambda key, version, correlation_id: b"HTTP/1.1 400 Bad Request\r\n", "does not answer like a Kafka broker"),
        (lambda key, version, correlation_id: b"\0\0\0\5abcde", "does not answer like a Kafka broker"),
        (lambda key, version, correlation_id: b"\xff\xff\xff\xff", "does not answer like a Kafka broker"),
    ],
)
def test_foreign_server_is_reported(answer: Answer, cause: str) -> None:
    with answering(answer) as address, pytest.raises(CommandError, match=cause):
        WireClient(address)


def test_a_broker_that_keeps_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REQUEST_TIMEOUT_S", 0.05)
    with (
        answering(lambda key, version, correlation_id: b"") as address,
        pytest.raises(CommandError, match="answer within"),
    ):
        WireClient(address)


def test_a_request_with_a_number_that_no_field_holds() -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=2**31, offset=0)]
    )
    with answering(broker((21, 0, 2))) as address, WireClient(address) as client:
        with pytest.raises(CommandError, match="cannot be sent .*<= 2147483647. Correct the values"):
            client.send(DeleteRecordsRequest(topics=[topic]))
        client.refresh()  # nothing was sent, and the connection is in use


def test_request_after_a_timeout_has_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that arrives late cannot be matched with the next request."""
    monkeypatch.setattr(wire, "REQUEST_TIMEOUT_S", 0.2)
    seen: list[int] = []

    def slow(key: int, version: int, correlation_id: int) -> bytes | None:
        seen.append(key)
        if key == 18:
            return frame(correlation_id, versions((21, 1, 1)).encode(0))
        return b"" if seen.count(21) == 1 else frame(correlation_id, DeleteRecordsResponse().encode(version))

    with answering(slow) as slow_address:
        node = MetadataResponse.MetadataResponseBroker(
            node_id=4, host="127.0.0.1", port=int(slow_address.rpartition(":")[2])
        )
        with answering(broker(brokers=[node])) as address, WireClient(address) as client:
            with pytest.raises(CommandError, match="did not answer within"):
                client.send(DeleteRecordsRequest(topics=[]), 4)
            assert client.send(DeleteRecordsRequest(topics=[]), 4).topics == []
    assert seen == [18, 21, 18, 21]


def test_security_that_is_not_built_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(CommandError, match="sasl.kerberos.service.name=: is not set"):
        WireClient("localhost:9092", str(file))


def test_refusals() -> None:
    check_code(0)
    with pytest.raises(BrokerRefusal, match=r"no such thing \(INVALID_REQUEST\)\."):
        check_code(42, "no such thing.")
    with pytest.raises(BrokerRefusal, match=r"the broker refused the request \(UNKNOWN_SERVER_ERROR\)\."):
        check_code(31_000)
