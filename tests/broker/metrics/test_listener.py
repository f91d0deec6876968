"""The listener for metrics over real sockets: what it serves, when the broker is ready, and any bytes."""

from __future__ import annotations

import asyncio
import base64
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gregor.broker import server as server_module
from gregor.broker.cluster.membership import until_informed
from gregor.broker.metrics.basic_authentication import BasicAuthentication
from gregor.broker.metrics.http import MAX_CONNECTIONS, MAX_HEAD_BYTES
from gregor.broker.net.context import ListenersContext
from gregor.broker.net.listening import BindError
from gregor.broker.server import Server
from gregor.broker.wiring import Node
from gregor.config.definitions import ConfigError
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from gregor.replication.partition.metadata_image import MetadataImage
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.scraped import get, parsed, series_of, server_with_metrics, urls_of
from tests.broker.test_server import Client

pytestmark = pytest.mark.slow
LIMIT_S = 120


def with_server(folder: Path, check: Callable[[Server, str], Awaitable[None]], **settings: str) -> None:
    async def test() -> None:
        server = server_with_metrics(folder, **settings)
        await server.start()
        try:
            await check(server, urls_of(server)[0])
        finally:
            await server.stop()
        await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(test(), LIMIT_S))


async def client_of(server: Server) -> Client:
    _, host, port = server.info.listeners[0]
    return Client(*await asyncio.open_connection(host, port))


def test_what_a_client_produces_is_counted_on_both_paths(tmp_path: Path) -> None:
    """The first request of a connection is served by the general handler, the later ones by the fast path."""

    async def check(server: Server, url: str) -> None:
        client = await client_of(server)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        created: CreateTopicsResponse = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
        assert not created.topics[0].error_code
        records = batch(b"one", b"two")
        for _ in range(3):
            await client.ask(produce_request("t", records, partition=1), 9)
        found = await series_of(url)
        for labels in ("", '{topic="t"}'):
            assert found[f"kafka_server_brokertopicmetrics_messagesin_total{labels}"] == 6
            assert found[f"kafka_server_brokertopicmetrics_bytesin_total{labels}"] == 3 * len(records)
            assert found[f"kafka_server_brokertopicmetrics_totalproducerequests_total{labels}"] == 3
        assert found['kafka_log_log_logendoffset{topic="t",partition="1"}'] == 6
        assert found['kafka_topic_partition_current_offset{topic="t",partition="1"}'] == 6
        assert found['kafka_topic_partition_current_offset{topic="t",partition="0"}'] == 0
        assert found['kafka_topic_partitions{topic="t"}'] == 2
        assert found["kafka_server_replicamanager_leadercount"] == 2
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == found["kafka_brokers"] == 1
        client.writer.close()

    with_server(tmp_path, check)


def test_openmetrics_is_served_where_the_scraper_accepts_it(tmp_path: Path) -> None:
    async def check(_server: Server, url: str) -> None:
        _, plain_type, plain = await get(f"{url}/metrics")
        _, open_type, opened = await get(
            f"{url}/metrics?any=thing", {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        )
        assert plain_type.startswith("text/plain; version=0.0.4")
        assert open_type.startswith("application/openmetrics-text; version=1.0.0")
        assert opened.endswith("\n# EOF\n") and "EOF" not in plain
        assert "# TYPE kafka_server_brokertopicmetrics_bytesin counter\n" in opened
        assert "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter\n" in plain
        assert parsed(plain).keys() == parsed(opened).keys()

    with_server(tmp_path, check)


def test_health_is_ready_exactly_while_the_broker_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []

    async def test() -> None:
        server = server_with_metrics(tmp_path)
        accept = server.listeners.accept
        assert server.metrics is not None
        stopping = server.metrics.stopping

        async def health(moment: str) -> None:
            for path in ("live", "ready"):
                seen.append((f"{moment} {path}", (await get(f"{urls_of(server)[0]}/health/{path}"))[0]))

        async def accepting(broker: ListenersContext) -> None:
            await health("before")
            await accept(broker)

        monkeypatch.setattr(server.listeners, "accept", accepting)
        await server.start()
        await health("while")
        stopping()
        await health("after")
        called = []
        monkeypatch.setattr(server.metrics, "stopping", lambda: called.append(server.listeners.serving))
        await server.stop()
        assert called == [True]  # before the listeners are closed

    asyncio.run(asyncio.wait_for(test(), LIMIT_S))
    assert seen == [
        *[("before live", 200), ("before ready", 503)],
        *[("while live", 200), ("while ready", 200)],
        *[("after live", 200), ("after ready", 503)],
    ]


def test_a_broker_is_ready_as_soon_as_it_serves_and_until_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first UpdateMetadata on, and through a controlled shutdown."""
    seen: list[tuple[str, int]] = []

    async def test() -> None:
        server = server_with_metrics(tmp_path)

        async def ready(moment: str) -> None:
            seen.append((moment, (await get(f"{urls_of(server)[0]}/health/ready"))[0]))

        async def informed(image: MetadataImage) -> bool:
            assert await until_informed(image)
            image.expect_topics(True)  # as if the controller's request were still under way
            await ready("not informed")
            image.expect_topics(False)
            await ready("informed")
            return True

        async def leads_elsewhere(_node: Node) -> None:
            await ready("controlled shutdown")

        monkeypatch.setattr(server_module, "until_informed", informed)
        monkeypatch.setattr(Node, "controlled_shutdown", leads_elsewhere)
        await server.start()
        monkeypatch.setattr(Node, "is_fenced", True)
        await ready("fenced")
        monkeypatch.setattr(Node, "is_fenced", False)
        close = server.listeners.close

        def closing() -> None:
            close()
            seen.append(("listeners are closed", 200 if server.metrics and not server.metrics.why_not_ready() else 503))

        monkeypatch.setattr(server.listeners, "close", closing)
        await server.stop()

    asyncio.run(asyncio.wait_for(test(), LIMIT_S))
    assert seen == [
        *[("not informed", 503), ("informed", 200), ("fenced", 503)],
        *[("controlled shutdown", 200), ("listeners are closed", 503)],
    ]


def test_readiness_names_the_reason(tmp_path: Path) -> None:
    async def check(server: Server, url: str) -> None:
        server.broker.controller_requests.session_ended()
        status, _, text = await get(f"{url}/health/ready")
        assert (status, text) == (
            503,
            "not ready: the broker is not registered in its cluster: its ZooKeeper session has ended\n",
        )
        assert (await get(f"{url}/health/live"))[0] == 200

    with_server(tmp_path, check)


async def raw(url: str, data: bytes) -> bytes:
    """Send bytes, then the end, and return all that comes back."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_any_bytes_are_survived(tmp_path: Path) -> None:
    chance = random.Random(7)
    get_live = b"GET /health/live HTTP/1.1\r\nHost: a\r\n"

    async def check(_server: Server, url: str) -> None:
        for data, status in (
            (get_live + b"\r\n", b"200"),
            (b"GET /health/live HTTP/1.0\r\n\r\n", b"200"),
            (b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
            (b"POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"405"),
            (get_live + b"Content-Length: 3\r\n\r\nabc", b"400"),
            (get_live + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"400"),
            (get_live + b"Content-Length: x\r\n\r\n", b"400"),
            (b"GET /health/live HTTP/1.1\r\n\r\n", b"400"),  # without Host
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES, b"431"),
            (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
            (b"\0" * 100 + b"\r\n\r\n", b"400"),
        ):
            answer = await raw(url, data)
            assert answer.startswith(b"HTTP/1.1 " + status), (data[:60], answer[:100])
        head = await raw(url, b"HEAD /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"Content-Length: 5\r\n" in head and head.endswith(b"\r\n\r\n")
        both = await raw(url, 2 * (get_live + b"\r\n"))
        assert both.count(b"live\n") == 2
        for _ in range(100):
            noise = bytearray(get_live + b"Accept: */*\r\n\r\n")
            for _ in range(chance.randrange(1, 6)):
                noise[chance.randrange(len(noise))] = chance.randrange(256)
            await raw(url, bytes(noise[: chance.randrange(len(noise))]))
        assert (await raw(url, get_live + b"\r\n")).endswith(b"live\n")

    with_server(tmp_path, check)


def test_connections_above_the_limit_are_closed_and_the_others_serve(tmp_path: Path) -> None:
    async def check(_server: Server, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        idle[0][1].write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await idle[0][0].readline()).startswith(b"HTTP/1.1 200")
        for _, one in idle:
            one.close()

    with_server(tmp_path, check)


def test_an_address_that_cannot_be_bound_stops_the_start(tmp_path: Path) -> None:
    async def check(_server: Server, url: str) -> None:
        other = server_with_metrics(tmp_path / "other", gregor_metrics_listener=url.removeprefix("http://"))
        with pytest.raises(BindError, match="METRICS://127.0.0.1"):
            await other.start()

    os.mkdir(tmp_path / "one")
    with_server(tmp_path / "one", check)


def password_file(folder: Path, content: str = "scraper:pass:word\n", mode: int = 0o600) -> str:
    folder.mkdir(exist_ok=True)
    file = folder / "metrics-password"
    file.write_text(content)
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0"])
def test_address_that_other_machines_reach_stops_the_start_without_a_password(tmp_path: Path, address: str) -> None:
    async def test() -> None:
        server = server_with_metrics(tmp_path, gregor_metrics_listener=address)
        with pytest.raises(ConfigError, match="set gregor.metrics.password.file to a file with USER:PASSWORD, or give"):
            await server.start()

    asyncio.run(asyncio.wait_for(test(), LIMIT_S))


def basic(credentials: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


def test_metrics_need_the_password_and_health_does_not(tmp_path: Path) -> None:
    async def check(_server: Server, url: str) -> None:
        reached = url.replace("0.0.0.0", "127.0.0.1")
        for headers in ({}, basic("scraper:wrong"), basic("scraper:pass:word "), {"Authorization": "Basic a"}):
            status, _, text = await get(f"{reached}/metrics", headers)
            assert (status, "password" in text, "kafka_" in text) == (401, True, False)
        status, _, text = await get(f"{reached}/metrics", basic("scraper:pass:word"))
        assert status == 200 and "kafka_brokers 1" in text
        for path in ("/health/live", "/health/ready"):
            assert (await get(reached + path))[0] == 200

    with_server(
        tmp_path / "data",
        check,
        gregor_metrics_listener="0.0.0.0:0",
        gregor_metrics_password_file=password_file(tmp_path),
        connection_failed_authentication_delay_ms="1",
    )


@pytest.mark.parametrize(
    ("content", "mode", "cause"),
    [
        ("scraper:word", 0o640, "has mode 0640"),
        ("scraper:word", 0o604, "has mode 0604"),
        ("scraper", 0o600, "does not have this form"),
        (":word", 0o600, "does not have this form"),
        ("a:b\nc:d\n", 0o600, "does not have this form"),
        ("a:" + "b" * 4096, 0o600, "does not have this form"),
    ],
)
def test_unfit_password_file_is_refused_without_its_content(
    tmp_path: Path, content: str, mode: int, cause: str
) -> None:
    with pytest.raises(ConfigError, match=f"gregor.metrics.password.file=.*{cause}") as refused:
        BasicAuthentication.of_file(password_file(tmp_path, content, mode))
    assert "word" not in str(refused.value).replace("password", "").replace("PASSWORD", "")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        BasicAuthentication.of_file(str(tmp_path / "none"))


def test_scheme_has_any_case_and_base64_must_be_whole() -> None:
    authentication = BasicAuthentication(b"a:b")
    assert authentication.admits(b"Basic YTpi") and authentication.admits(b"bAsIc  YTpi ")
    for header in (b"", b"Basic", b"Basic YTp", b"Bearer YTpi", b"Basic YTpi!", b"Basic \xff", b"Basic YTpiYg=="):
        assert not authentication.admits(header)
