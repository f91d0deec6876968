"""The lag of clients by the positions in their fetches, in sessions and outside of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.fetch import sessions as fetch_sessions
from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH
from gregor.broker.fetch.sessions import FetchSessions
from gregor.broker.metrics.lag import clients
from gregor.broker.metrics.lag.clients import KEPT_MS, ClientPositions, collect_clients
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.server import Server
from gregor.protocol.messages import FetchRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import MetadataImage
from tests.broker.fetch.test_sessions import request
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.lag.test_groups import create
from tests.broker.metrics.scraped import series_of
from tests.broker.metrics.test_listener import client_of, with_server

END = 100
LAG = "gregor_client_fetch_lag{"


class Subject:
    """Fetches of clients on a broker that has all partitions, each with a high watermark of END."""

    def __init__(self, slots: int = 10) -> None:
        self.now_ms = KEPT_MS * 10
        self.sessions = FetchSessions(slots)
        partition = SimpleNamespace(log=SimpleNamespace(high_watermark=END))
        replicas: Any = SimpleNamespace(get=lambda topic, _index: None if topic == "elsewhere" else partition)
        self._positions = ClientPositions(self.sessions, replicas, MetadataImage(), lambda: self.now_ms)

    def fetch(
        self,
        client_id: str,
        *wanted: tuple[str, int, int],
        session: tuple[int, int] = (0, INITIAL_EPOCH),
        connection: object = None,
        forget: tuple[str, int] | None = None,
    ) -> int:
        """Return the id of the session."""
        context = self.sessions.context(request(*session, *wanted, forget=forget), False, self.now_ms)
        if not context.incremental:
            self.sessions.note_client(client_id, connection, context, self.now_ms)
        return context.session_id

    def lags(self) -> dict[str, int]:
        """The lags, by `client topic-partition`."""
        page = Page(FAMILIES)
        run_all(collect_clients(page, self._positions))
        text = b"".join(run_all(page.render(openmetrics=False))).decode()
        found = {}
        for line in text.splitlines():
            if line.startswith(LAG):
                labels, _, value = line.rpartition(" ")
                _, client_id, _, topic, _, index, _ = labels.split('"')
                found[f"{client_id} {topic}-{index}"] = int(value)
        return found


SESSIONLESS = (0, FINAL_EPOCH)


def test_positions_of_a_session_are_shown_while_it_is_in_use() -> None:
    subject = Subject()
    session = subject.fetch("spark", ("t", 0, 40), ("t", 1, END))
    assert subject.lags() == {"spark t-0": 60, "spark t-1": 0}
    subject.fetch("spark", ("t", 0, 70), session=(session, 1))
    assert subject.lags() == {"spark t-0": 30, "spark t-1": 0}
    subject.now_ms += KEPT_MS + 1
    assert subject.lags() == {}
    subject.fetch("spark", session=(session, 2))
    assert subject.lags() == {"spark t-0": 30, "spark t-1": 0}


def test_a_partition_that_the_client_is_busy_with_keeps_its_position() -> None:
    subject = Subject()
    session = subject.fetch("flink", ("t", 0, 40), ("t", 1, 50))
    subject.fetch("flink", session=(session, 1), forget=("t", 0))
    assert subject.lags() == {"flink t-0": 60, "flink t-1": 50}
    subject.fetch("flink", ("t", 0, 90), session=(session, 2))
    assert subject.lags() == {"flink t-0": 10, "flink t-1": 50}
    subject.fetch("flink", session=(session, 3), forget=("t", 1))
    subject.now_ms += KEPT_MS + 1
    subject.fetch("flink", session=(session, 4))
    assert subject.lags() == {"flink t-0": 10}, "it may have left the partition to another client"


def test_clients_without_sessions_are_shown() -> None:
    subject = Subject()
    subject.fetch("rdkafka", ("t", 0, 40), session=SESSIONLESS, connection=subject)
    assert subject.lags() == {"rdkafka t-0": 60}
    subject.fetch("rdkafka", ("t", 1, 50), session=SESSIONLESS, connection=subject)
    assert subject.lags() == {"rdkafka t-0": 60, "rdkafka t-1": 50}, "a fetch names some of the partitions"
    subject.now_ms += KEPT_MS + 1
    assert subject.lags() == {}


def test_without_room_for_a_session_a_client_is_shown_as_well() -> None:
    subject = Subject(slots=0)
    assert subject.fetch("java", ("t", 0, 40)) == 0
    assert subject.lags() == {"java t-0": 60}


def test_of_one_client_id_the_position_furthest_behind_is_shown() -> None:
    subject = Subject()
    first, second = object(), object()
    subject.fetch("same", ("t", 0, 40))
    subject.fetch("same", ("t", 0, 30))
    subject.fetch("same", ("t", 0, 35), ("t", 1, 80), session=SESSIONLESS, connection=first)
    subject.fetch("same", ("t", 1, 90), session=SESSIONLESS, connection=second)
    assert subject.lags() == {"same t-0": 70, "same t-1": 20}


def test_only_partitions_of_this_broker_are_shown() -> None:
    subject = Subject()
    subject.fetch("c", ("elsewhere", 0, 1), ("t", 0, 1))
    assert subject.lags() == {"c t-0": 99}


def test_the_tables_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_WITHOUT_SESSION", 5)
    monkeypatch.setattr(clients, "MAX_POSITIONS", 7)
    subject = Subject()
    connections = [object() for _ in range(9)]
    for number, connection in enumerate(connections):
        subject.fetch(f"c{number}", ("t", 0, 0), session=SESSIONLESS, connection=connection)
    assert len(subject.sessions.without_session) == 5
    assert list(subject.lags()) == [f"c{number} t-0" for number in range(4, 9)]
    subject.fetch("many", *(("u", index, 0) for index in range(9)))
    assert len(subject.lags()) == 7


@pytest.mark.slow
def test_a_consumer_that_commits_nothing_has_a_lag(tmp_path: Path) -> None:
    async def check(server: Server, url: str) -> None:
        client = await client_of(server)
        await create(client, "t", 1)
        for _ in range(3):
            await client.ask(produce_request("t", batch(b"a", b"b")), 9)
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
        topics = [FetchRequest.FetchTopic(topic="t", partitions=[wanted])]
        for session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            fetch = FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=session_epoch, topics=topics)
            assert (await client.ask(fetch, 12)).responses[0].partitions[0].high_watermark == 6
            lags = {name: lag for name, lag in (await series_of(url)).items() if name.startswith(LAG)}
            assert list(lags.values()) == [4]
        client.writer.close()

    with_server(tmp_path, check)
