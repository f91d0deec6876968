"""The lines of groups that are kept from scrape to scrape are those of a view that makes all of them anew."""

from __future__ import annotations

import random

from gregor.broker.metrics.lag.blocks import MAX_AGE_MS
from gregor.broker.metrics.lag.first_unread import NO_RECORD, Position
from gregor.broker.metrics.lag.groups import GroupView
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.protocol.ids import ZERO_UUID, Uuid
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, run_all
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.partition.partition import NO_EPOCH
from tests.broker.metrics.lag.test_groups import known
from tests.coordinator.context import Context

PARTITIONS = ITEMS_PER_STEP + 20
GROUPS = ("100 %", "b")
TOPIC_ID, OTHER_ID = bytes(15) + b"\1", bytes(15) + b"\2"


class Scraped:
    """Groups, the ends of logs and the times of records, which change from scrape to scrape."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.now_ms = 1_000_000.0
        self.own: dict[TopicPartitionKey, int] = {}
        self.fetched: dict[TopicPartitionKey, int] = {}
        self.times: dict[Position, int] = {}
        self.image = MetadataImage()
        self.kept = self.view()

    def view(self) -> GroupView:
        fetched = known(self.fetched)
        topic_of = self.image.topic
        return GroupView(
            self.context.coordinator, known(self.own), fetched, self.times.get, topic_of, lambda: self.now_ms
        )

    def lead(self, partition: int, *, epoch: int, topic_id: Uuid = TOPIC_ID) -> None:
        """Have the metadata image show this leader epoch of a partition."""
        state = UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=partition, leader_epoch=epoch)
        topic = UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name="t", topic_id=topic_id, partition_states=[state]
        )
        run_all(self.image.apply(UpdateMetadataRequest(topic_states=[topic])))

    def position(self, partition: int, offset: int) -> Position:
        """Return the position in the log of the present leader."""
        topic, state = self.image.topic("t"), self.image.partition("t", partition)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        return Position("t", partition, offset, topic_id, NO_EPOCH if state is None else state.leader_epoch)

    def text(self, view: GroupView) -> tuple[str, list[Position]]:
        page = Page(FAMILIES)
        run_all(view.others())
        unread = run_all(view.unread())
        run_all(view.collect(page))
        return b"".join(run_all(page.render(openmetrics=False))).decode(), list(unread)


def changed(scraped: Scraped, chosen: random.Random) -> None:
    """Some commits, records, and changes of leaders."""
    scraped.now_ms += chosen.choice([500, 1000])  # less than a minute in all: a status needs the scrapes before
    for _ in range(chosen.choice([0, 0, 1, 3])):
        partition, group = chosen.randrange(PARTITIONS), chosen.choice(GROUPS)
        scraped.context.commit_offset(chosen.randrange(10), group=group, partition=partition)
    for _ in range(chosen.choice([0, 1, 2])):
        key = ("t", chosen.randrange(PARTITIONS))
        ends = chosen.choice([scraped.own, scraped.own, scraped.fetched])
        scraped.own.pop(key, None)
        scraped.fetched.pop(key, None)
        if chosen.random() < 0.8:
            ends[key] = chosen.randrange(12)
    if chosen.random() < 0.2:
        scraped.lead(chosen.randrange(PARTITIONS), epoch=chosen.randrange(3))
    for _ in range(3):
        position = scraped.position(chosen.randrange(PARTITIONS), chosen.randrange(10))
        # A known time stays; that of a position without a record, or one that could not be read, may be known later.
        if scraped.times.get(position, NO_RECORD) == NO_RECORD:
            scraped.times[position] = chosen.choice([NO_RECORD, int(scraped.now_ms) - 1234, int(scraped.now_ms) + 700])


def test_kept_lines_of_groups_are_those_that_would_be_made_anew() -> None:
    chosen = random.Random(3)
    with Context() as context:
        for group in GROUPS:
            for partition in range(0, PARTITIONS, 2):
                context.commit_offset(5, group=group, partition=partition)
        scraped = Scraped(context)
        texts = set()
        for _ in range(20):
            changed(scraped, chosen)
            text, unread = scraped.text(scraped.kept)
            anew, unread_anew = scraped.text(scraped.view())
            assert text == anew
            assert set(unread) <= set(unread_anew), "a time that is known is not read again"
            texts.add(text)
        assert len(texts) > 12
        assert 'group="100 %"' in text


def test_a_scrape_that_ends_early_loses_no_change() -> None:
    with Context() as context:
        context.commit_offset(5)
        scraped = Scraped(context)
        scraped.own["t", 0] = 8
        scraped.text(scraped.kept)
        context.commit_offset(6)
        scraped.own["t", 0] = 9
        run_all(scraped.kept.others())  # no more of this one
        assert scraped.text(scraped.kept)[0] == scraped.text(scraped.view())[0]
        context.commit_offset(7)
        run_all(scraped.kept.others())
        run_all(scraped.kept.unread())
        assert scraped.text(scraped.kept)[0] == scraped.text(scraped.view())[0]


def test_the_time_of_a_first_unread_record_is_read_once() -> None:
    with Context() as context:
        context.commit_offset(5)
        scraped = Scraped(context)
        scraped.own["t", 0] = 8
        position = scraped.position(0, 5)
        assert scraped.text(scraped.kept)[1] == [position]
        assert scraped.text(scraped.kept)[1] == [position], "it could not be read"
        scraped.times[position] = NO_RECORD
        assert scraped.text(scraped.kept)[1] == [position]
        assert scraped.text(scraped.kept)[1] == [position], "a record may come"
        scraped.times[position] = 999_000
        scraped.text(scraped.kept)
        text, unread = scraped.text(scraped.kept)
        assert unread == []
        assert 'kafka_consumergroup_group_lag_seconds{group="g",topic="t",partition="0"} 1.000\n' in text


def test_the_time_is_read_again_where_another_record_may_be_at_the_offset() -> None:
    with Context() as context:
        context.commit_offset(5)
        scraped = Scraped(context)
        scraped.own["t", 0] = 8

        def lag_s() -> str:
            lines = scraped.text(scraped.kept)[0].splitlines()
            return next((line.rpartition(" ")[2] for line in lines if "lag_seconds{" in line), "missing")

        for age_ms, epoch, topic_id in ((1000, 3, TOPIC_ID), (2000, 4, TOPIC_ID), (3000, 4, OTHER_ID)):
            scraped.lead(0, epoch=epoch, topic_id=topic_id)
            assert lag_s() == "missing"
            scraped.times[scraped.position(0, 5)] = int(scraped.now_ms) - age_ms
            assert lag_s() == f"{age_ms / 1000:.3f}"
        scraped.lead(1, epoch=9, topic_id=OTHER_ID)
        assert scraped.text(scraped.kept)[1] == [], "another partition has a new leader"


def test_the_time_is_read_again_after_a_minute_as_its_record_may_be_gone() -> None:
    """By retention, DeleteRecords or compaction, which another leader does not show."""
    with Context() as context:
        context.commit_offset(5)
        scraped = Scraped(context)
        scraped.own["t", 0] = 8
        position = scraped.position(0, 5)
        scraped.times[position] = 990_000
        scraped.text(scraped.kept)
        scraped.times[position] = 998_000
        scraped.now_ms += MAX_AGE_MS / 2 - 1
        text, unread = scraped.text(scraped.kept)
        assert unread == [] and 'partition="0"} 39.999\n' in text
        scraped.now_ms += MAX_AGE_MS / 2 + 1
        del scraped.times[position]
        for _ in range(2):
            text, unread = scraped.text(scraped.kept)
            assert unread == [position] and 'partition="0"} 70.000\n' in text, "it stays until it is read"
            scraped.own["t", 0] += 1
        scraped.times[position] = 998_000
        assert 'partition="0"} 62.000\n' in scraped.text(scraped.kept)[0]
        assert scraped.text(scraped.kept)[1] == []
        scraped.now_ms -= 10 * MAX_AGE_MS
        assert scraped.text(scraped.kept)[1] == [position], "the clock was set back"
