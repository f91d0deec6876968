"""The lag of clients by the positions in their fetches, in sessions and outside of them."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.fetch import sessions as fetch_sessions
from gregor.broker.fetch.session_cache import FINAL_EPOCH, INITIAL_EPOCH
from gregor.broker.fetch.sessions import MAX_CLIENT_ID, FetchSessions
from gregor.broker.metrics.lag import clients
from gregor.broker.metrics.lag.clients import (
    FETCHES_MS,
    KEPT_MS,
    LAG_READER,
    ClientLagLines,
    ClientPositions,
)
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.server import Server
from gregor.protocol.messages import FetchRequest
from gregor.protocol.records.batch import MAGIC_AT, build_batch
from gregor.protocol.turns import ITEMS_PER_STEP, Steps, run_all
from gregor.replication.partition.metadata_image import MetadataImage
from tests.broker.fetch.test_sessions import request
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.lag.test_groups import create
from tests.broker.metrics.scraped import series_of
from tests.broker.metrics.test_listener import client_of, with_server

END = 100
LAG = "gregor_client_fetch_lag{"
SECONDS = "gregor_client_fetch_lag_seconds{"
OLD = 10
"""Records before this offset are in a format without the time of the first record."""


class Piece:
    """The batch of one record at an offset, whose time is its offset in seconds."""

    active = True

    def __init__(self, offset: int) -> None:
        self._bytes = bytearray(build_batch([(None, b"v")], timestamp_ms=offset * 1000, base_offset=offset))
        if offset < OLD:
            self._bytes[MAGIC_AT] = 1
        self.size_bytes = len(self._bytes)

    def read_into(self, header: memoryview) -> int:
        header[:] = self._bytes[: len(header)]
        return len(header)

    def release(self) -> None:
        pass


class FakePartition:
    """Its log has a record at each offset below the high watermark."""

    def __init__(self) -> None:
        self.log = SimpleNamespace(high_watermark=END, log_start_offset=0, generation=0)
        self.topic_id = bytes(16)
        self.is_leader = True
        self.read_offsets: list[int] = []

    def read(self, offset: int, _max_bytes: int, *, waits_for_disk: bool, leader_only: bool) -> Piece:
        assert not waits_for_disk, "the event loop waits for a disk"
        assert not leader_only, "clients read from followers, too"
        self.read_offsets.append(offset)
        return Piece(offset)


class Subject:
    """Fetches of clients on a broker that has all partitions, each with a high watermark of END."""

    def __init__(self, slots: int = 10) -> None:
        self.now_ms = KEPT_MS * 10
        self.sessions = FetchSessions(slots)
        self.partition = FakePartition()
        replicas: Any = SimpleNamespace(get=lambda topic, _index: None if topic == "elsewhere" else self.partition)
        self._lines = ClientLagLines(ClientPositions(self.sessions, replicas, MetadataImage(), lambda: self.now_ms))

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

    def steps(self) -> Steps[None]:
        return self._lines.collect(Page(FAMILIES))

    def lags(self) -> dict[str, int]:
        """The lags, by `client topic-partition`."""
        return {name: int(value) for name, value in self.shown(LAG).items()}

    def shown(self, family: str) -> dict[str, float]:
        """Scrape; return the values of a family, by `client topic-partition`."""
        page = Page(FAMILIES)
        run_all(self._lines.collect(page))
        text = b"".join(run_all(page.render(openmetrics=False))).decode()
        found = {}
        for line in text.splitlines():
            if line.startswith(family):
                labels, _, value = line.rpartition(" ")
                _, client_id, _, topic, _, index, _ = labels.split('"')
                found[f"{client_id} {topic}-{index}"] = float(value)
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


def test_commands_that_read_the_age_of_a_record_are_not_behind() -> None:
    subject = Subject()
    subject.fetch(LAG_READER, ("t", 0, 40))
    subject.fetch(LAG_READER, ("t", 1, 40), session=SESSIONLESS, connection=1)
    assert subject.lags() == {}


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


def test_a_client_does_not_choose_the_size_of_the_page() -> None:
    subject = Subject()
    subject.fetch("c" * 32_000, ("t", 0, 97), session=SESSIONLESS, connection=object())
    subject.fetch("d" * 32_000, ("t", 0, 98))
    assert set(subject.shown(LAG)) == {f"{'c' * MAX_CLIENT_ID} t-0", f"{'d' * MAX_CLIENT_ID} t-0"}


def test_of_one_client_id_the_position_furthest_behind_is_shown() -> None:
    subject = Subject()
    first, second = object(), object()
    subject.fetch("same", ("t", 0, 40))
    subject.fetch("same", ("t", 0, 30))
    subject.fetch("same", ("t", 0, 35), ("t", 1, 80), session=SESSIONLESS, connection=first)
    subject.fetch("same", ("t", 1, 90), session=SESSIONLESS, connection=second)
    assert subject.lags() == {"same t-0": 70, "same t-1": 20}


def test_seconds_are_the_age_of_the_first_record_from_the_position_on() -> None:
    subject = Subject()
    now_s = subject.now_ms / 1000
    session = subject.fetch("spark", ("t", 0, 40), ("t", 1, END), ("t", 2, OLD - 1))
    assert subject.shown(SECONDS) == {"spark t-0": now_s - 40, "spark t-1": 0.0}, "an old format has no such time"
    subject.now_ms += 1500
    assert subject.shown(SECONDS) == {"spark t-0": now_s + 1.5 - 40, "spark t-1": 0.0}
    subject.fetch("spark", ("t", 0, 70), session=(session, 1))
    assert subject.shown(SECONDS) == {"spark t-0": now_s + 1.5 - 70, "spark t-1": 0.0}
    subject.now_ms = 69_000
    subject.fetch("spark", session=(session, 2))
    assert subject.shown(SECONDS)["spark t-0"] == 0.0, "the client's clock is ahead"


def test_the_time_at_a_position_is_read_once() -> None:
    subject = Subject()
    session = subject.fetch("flink", ("t", 0, 40), ("t", 1, END), ("t", 2, OLD - 1))
    for _ in range(3):
        assert len(subject.shown(SECONDS)) == 2
    assert subject.partition.read_offsets == [40, OLD - 1], "also that the time is not known is kept"
    subject.fetch("flink", ("t", 0, 41), session=(session, 1))
    subject.shown(SECONDS)
    assert subject.partition.read_offsets == [40, OLD - 1, 41]


def test_the_time_is_read_again_from_a_log_that_was_truncated_or_is_of_another_topic() -> None:
    subject = Subject()
    partition = subject.partition
    subject.fetch("flink", ("t", 0, 40))
    subject.shown(SECONDS)
    partition.log.generation += 1
    for _ in range(2):
        subject.shown(SECONDS)
    assert partition.read_offsets == [40, 40]
    partition.topic_id = b"i" * 16
    subject.shown(SECONDS)
    assert partition.read_offsets == [40, 40, 40]


def test_the_record_at_the_log_start_is_the_first_unread_one_where_older_ones_were_removed() -> None:
    subject = Subject()
    now_s = subject.now_ms / 1000
    subject.fetch("slow", ("t", 0, 40))
    assert subject.shown(SECONDS) == {"slow t-0": now_s - 40}
    for log_start_offset in (60, 70):
        subject.partition.log.log_start_offset = log_start_offset
        assert subject.shown(SECONDS) == {"slow t-0": now_s - log_start_offset}
    assert subject.lags() == {"slow t-0": 60}, "from the position on"


def test_a_large_session_is_read_in_short_steps() -> None:
    subject, blocks = Subject(), 10
    subject.fetch("wide", *(("t", index, END) for index in range(blocks * ITEMS_PER_STEP)))
    # Each block is a step of three kinds of work: its positions, its lag, its lines.
    assert sum(1 for _ in subject.steps()) >= 3 * blocks


def test_each_read_of_a_log_is_a_step_of_its_own() -> None:
    subject, read_offsets = Subject(), []
    subject.fetch("behind", *(("t", index, 50) for index in range(ITEMS_PER_STEP)))
    for _ in subject.steps():
        read_offsets.append(len(subject.partition.read_offsets))
    assert read_offsets[-1] == ITEMS_PER_STEP
    assert max(after - before for before, after in pairwise(read_offsets)) == 1


def test_many_remembered_positions_are_read_in_short_steps() -> None:
    subject, blocks = Subject(), 10
    wanted = [("t", index, END) for index in range(blocks * ITEMS_PER_STEP)]
    subject.fetch("rdkafka", *wanted, session=SESSIONLESS, connection=subject)
    before = sum(1 for _ in subject.steps())
    subject.fetch("rdkafka", ("t", 0, END), session=SESSIONLESS, connection=subject)
    # The positions are those of an earlier fetch now, the last one named a single partition.
    assert len(subject.lags()) == len(wanted)
    assert sum(1 for _ in subject.steps()) >= 4 * blocks
    assert before >= 4 * blocks


def test_a_client_that_has_left_for_another_leader_is_not_shown_here() -> None:
    """Its positions here stay, while the high watermark of the follower grows."""
    subject = Subject()
    subject.fetch("alone", ("t", 9, 40))
    session = subject.fetch("java", ("t", 0, 40), ("t", 1, 50))
    subject.fetch("rdkafka", ("t", 2, 60), session=SESSIONLESS, connection=subject)
    assert len(subject.lags()) == 4
    subject.fetch("rdkafka", ("t", 3, 70), session=SESSIONLESS, connection=subject)
    subject.fetch("java", session=(session, 1), forget=("t", 0))
    assert subject.lags().keys() == {"alone t-9", "java t-0", "java t-1", "rdkafka t-2", "rdkafka t-3"}
    subject.partition.is_leader = False
    assert subject.lags() == {"alone t-9": 60, "java t-1": 50, "rdkafka t-3": 30}, "they may fetch from a follower"
    subject.now_ms += FETCHES_MS + 1
    subject.fetch("java", session=(session, 2))
    assert subject.lags() == {"java t-1": 50}
    subject.partition.is_leader = True
    assert subject.lags().keys() == {"alone t-9", "java t-0", "java t-1", "rdkafka t-3"}, "busy with what they fetched"


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


def test_remembered_positions_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, unlimited = Subject(), clients.MAX_POSITIONS
    monkeypatch.setattr(clients, "MAX_POSITIONS", 7)
    subject.fetch("many", *(("t", index, 0) for index in range(9)), session=SESSIONLESS, connection=subject)
    subject.lags()
    monkeypatch.setattr(clients, "MAX_POSITIONS", unlimited)
    subject.fetch("many", ("t", 0, 0), session=SESSIONLESS, connection=subject)
    assert len(subject.lags()) == 7


@pytest.mark.slow
def test_a_consumer_that_commits_nothing_has_a_lag(tmp_path: Path) -> None:
    async def check(server: Server, url: str) -> None:
        client = await client_of(server)
        await create(client, "t", 1)
        for number in range(3):
            records = batch(b"a", b"b", timestamp_ms=1000 * (number + 1))
            await client.ask(produce_request("t", records), 9)
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
        topics = [FetchRequest.FetchTopic(topic="t", partitions=[wanted])]
        for session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            fetch = FetchRequest(max_wait_ms=0, max_bytes=1000, session_epoch=session_epoch, topics=topics)
            assert (await client.ask(fetch, 12)).responses[0].partitions[0].high_watermark == 6
            before_s = time.time()
            found = await series_of(url)
            assert [lag for name, lag in found.items() if name.startswith(LAG)] == [4]
            (lag_s,) = [age_s for name, age_s in found.items() if name.startswith(SECONDS)]
            assert before_s - 2.001 <= lag_s <= time.time() - 2
        client.writer.close()

    with_server(tmp_path, check)
