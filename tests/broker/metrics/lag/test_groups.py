"""The series of groups: what their coordinator shows of committed offsets and members."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gregor.broker.metrics.lag.first_unread import NO_RECORD, Position
from gregor.broker.metrics.lag.groups import EndsOf, GroupView
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.server import Server
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    CreateTopicsRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
)
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, run_all
from gregor.replication.partition.metadata_image import MetadataImage
from tests.broker.harness import batch, produce_request
from tests.broker.metrics.scraped import series_of
from tests.broker.metrics.test_listener import client_of, with_server
from tests.broker.test_server import Client
from tests.coordinator.context import Context

MOVING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
NOW_MS = 1_000_000.0
NO_TIMES: Mapping[Position, int] = {}
NO_TOPICS = MetadataImage().topic
SETTINGS = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}


def commit_request(group: str, offsets: Mapping[int, int], topic: str = "t") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    )


async def commit(client: Client, request: OffsetCommitRequest) -> None:
    """Commit, once the topic of the offsets exists and its coordinator has loaded it."""
    while True:
        answer = await client.ask(request, 8)
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
        if codes == {ErrorCode.NONE}:
            return
        assert codes <= set(MOVING), codes
        await asyncio.sleep(0.02)


async def create(client: Client, name: str, partitions: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
    assert not answer.topics[0].error_code


async def groups_of(url: str) -> dict[str, float]:
    return {name: value for name, value in (await series_of(url)).items() if name.startswith("kafka_consumergroup_")}


@pytest.mark.slow
def test_committed_offsets_and_members_are_shown(tmp_path: Path) -> None:
    async def check(server: Server, url: str) -> None:
        client = await client_of(server)
        await create(client, "t", 3)
        assert await groups_of(url) == {}
        produced_ms = int(time.time() * 1000) - 90_000
        for number in range(3):  # the record at offset 5 is the second of the last batch
            await client.ask(produce_request("t", batch(b"a", b"b", timestamp_ms=produced_ms + 1000 * number)), 9)
        await client.ask(FindCoordinatorRequest(key='of "us"'), 1)
        await commit(client, commit_request('of "us"', {0: 5, 2: 7}))
        found = await groups_of(url)
        age_s = 'kafka_consumergroup_group_lag_seconds{group="of \\"us\\"",topic="t",partition="0"}'
        assert found[age_s] == found.pop('kafka_consumergroup_group_max_lag_seconds{group="of \\"us\\""}')
        assert 88 <= found.pop(age_s) < 88 + 60
        assert found == {
            'kafka_consumergroup_current_offset{consumergroup="of \\"us\\"",topic="t",partition="0"}': 5,
            'kafka_consumergroup_current_offset{consumergroup="of \\"us\\"",topic="t",partition="2"}': 7,
            'kafka_consumergroup_current_offset_sum{consumergroup="of \\"us\\"",topic="t"}': 12,
            'kafka_consumergroup_lag{consumergroup="of \\"us\\"",topic="t",partition="0"}': 1,
            'kafka_consumergroup_lag{consumergroup="of \\"us\\"",topic="t",partition="2"}': 0,
            'kafka_consumergroup_lag_sum{consumergroup="of \\"us\\"",topic="t"}': 1,
            'kafka_consumergroup_group_lag{group="of \\"us\\"",topic="t",partition="0"}': 1,
            'kafka_consumergroup_group_lag{group="of \\"us\\"",topic="t",partition="2"}': 0,
            'kafka_consumergroup_group_lag_seconds{group="of \\"us\\"",topic="t",partition="2"}': 0,
            'kafka_consumergroup_group_max_lag{group="of \\"us\\""}': 1,
            'kafka_consumergroup_group_sum_lag{group="of \\"us\\""}': 1,
            'kafka_consumergroup_group_topic_sum_lag{group="of \\"us\\"",topic="t"}': 1,
            'kafka_consumergroup_members{consumergroup="of \\"us\\""}': 0,
        }
        statuses = [name for name in await series_of(url) if name.startswith("gregor_consumergroup_status")]
        assert len(statuses) == 1 and 'group="of \\"us\\"",status="ok"' in statuses[0]
        client.writer.close()

    with_server(tmp_path, check, **SETTINGS)


def known(ends: Mapping[TopicPartitionKey, int]) -> EndsOf:
    return lambda keys: [ends.get(key) for key in keys]


def collect(view: GroupView, page: Page) -> None:
    """As a scrape does it."""
    run_all(view.others())
    run_all(view.unread())
    run_all(view.collect(page))


def lines_of(
    context: Context, ends: Mapping[TopicPartitionKey, int], times: Mapping[Position, int] = NO_TIMES
) -> list[str]:
    """The page of the groups of a coordinator, by line."""
    page = Page(FAMILIES)
    collect(GroupView(context.coordinator, known({}), known(ends), times.get, NO_TOPICS, lambda: NOW_MS), page)
    text = b"".join(run_all(page.render(openmetrics=False))).decode()
    return [line.removeprefix("kafka_consumergroup_") for line in text.splitlines() if not line.startswith("#")]


def test_members_of_groups_are_counted() -> None:
    with Context(partition_count=3) as context:
        context.stable_group(2, group="two")
        context.commit_offset(group="none")
        found = [line for line in lines_of(context, {}) if line.startswith("members")]
        assert sorted(found) == ['members{consumergroup="none"} 0', 'members{consumergroup="two"} 2']


def test_lag_is_missing_where_an_end_is_not_known_and_never_negative() -> None:
    with Context() as context:
        for partition, offset in enumerate((5, 7, 9)):
            context.commit_offset(offset, partition=partition)
        labels = '{consumergroup="g",topic="t"'
        known = {("t", 0): 8, ("t", 1): 7}
        offsets = [
            f'current_offset{labels},partition="{index}"}} {offset}' for index, offset in ((0, 5), (1, 7), (2, 9))
        ]
        others = [f"current_offset_sum{labels}}} 21", 'members{consumergroup="g"} 0']

        def lags(*of_partitions: tuple[int, int]) -> list[str]:
            exported = [f'group_lag{{group="g",topic="t",partition="{index}"}} {lag}' for index, lag in of_partitions]
            known = [lag for _, lag in of_partitions]
            of_group = [f'group_max_lag{{group="g"}} {max(known)}', f'group_sum_lag{{group="g"}} {sum(known)}']
            return [f'lag{labels},partition="{index}"}} {lag}' for index, lag in of_partitions] + exported + of_group

        def shown(ends: Mapping[TopicPartitionKey, int]) -> list[str]:
            return sorted(line for line in lines_of(context, ends) if "seconds" not in line and "status" not in line)

        assert shown(known) == sorted([*offsets, *lags((0, 3), (1, 0)), *others])
        sums = [f"lag_sum{labels}}} 3", 'group_topic_sum_lag{group="g",topic="t"} 3']
        assert shown({**known, ("t", 2): 4}) == sorted([*offsets, *lags((0, 3), (1, 0), (2, 0)), *sums, *others])


def test_seconds_are_the_age_of_the_first_unread_record_and_missing_where_it_is_not_known() -> None:
    with Context() as context:
        for partition in range(4):
            context.commit_offset(5, partition=partition)
        ends = {("t", partition): 5 if partition == 3 else 8 for partition in range(4)}
        times = {Position("t", 0, 5): int(NOW_MS) - 2500, Position("t", 1, 5): int(NOW_MS) + 60_000}
        context.commit_offset(5, partition=4)
        ends["t", 4], times[Position("t", 4, 5)] = 6, NO_RECORD
        found = [line for line in lines_of(context, ends, times) if "seconds" in line]
        prefix = 'group_lag_seconds{group="g",topic="t",partition='
        assert sorted(found) == [
            f'{prefix}"0"}} 2.500',
            f'{prefix}"1"}} 0.000',
            f'{prefix}"3"}} 0.000',
            f'{prefix}"4"}} 0.000',
            'group_max_lag_seconds{group="g"} 2.5',
        ]


def test_the_status_of_a_group_is_that_of_its_worst_partition() -> None:
    with Context() as context:
        context.commit_offset(5, partition=0)
        context.commit_offset(5, partition=1)
        now_ms = [NOW_MS]
        ends = {("t", 0): 8, ("t", 1): 5}
        view = GroupView(context.coordinator, known({}), known(ends), NO_TIMES.get, NO_TOPICS, lambda: now_ms[0])

        def statuses() -> list[str]:
            page = Page(FAMILIES)
            collect(view, page)
            text = b"".join(run_all(page.render(openmetrics=False))).decode()
            return [line.partition(',reason="')[0] for line in text.splitlines() if line.startswith("gregor_consumer")]

        assert statuses() == ['gregor_consumergroup_status{group="g",status="ok"']
        for _ in range(6):
            now_ms[0] += 10_000
            found = statuses()
        assert found == [
            'gregor_consumergroup_status{group="g",status="stopped"',
            'gregor_consumergroup_partition_status{group="g",topic="t",partition="0",status="stopped"',
        ]
        context.commit_offset(8, partition=0)
        now_ms[0] += 10_000
        assert statuses() == ['gregor_consumergroup_status{group="g",status="ok"']


def test_unread_positions_are_those_below_known_ends() -> None:
    with Context() as context:
        for partition, offset in enumerate((5, 7, 9)):
            context.commit_offset(offset, partition=partition)
        ends = {("t", 0): 6, ("t", 1): 7}
        view = GroupView(context.coordinator, known({}), known(ends), NO_TIMES.get, NO_TOPICS)
        run_all(view.others())
        assert list(run_all(view.unread())) == [Position("t", 0, 5)]


def test_partitions_with_offsets_are_found_once() -> None:
    with Context(partition_count=3) as context:
        for group in ("a", "b"):
            for partition in (0, 4):
                context.commit_offset(group=group, partition=partition)
        found = run_all(GroupView(context.coordinator, known({}), known({}), NO_TIMES.get, NO_TOPICS).others())
        assert sorted(found) == [("t", 0), ("t", 4)]


def test_shards_that_are_not_loaded_are_left_out() -> None:
    with Context() as context:
        context.commit_offset()
        assert lines_of(context, {})
        context.coordinator.on_resigned(0)
        assert lines_of(context, {}) == []


def test_a_group_that_ends_between_two_steps_is_left_out() -> None:
    with Context() as context:
        for number in range(ITEMS_PER_STEP + 1):
            context.commit_offset(group=f"g{number}")
        page = Page(FAMILIES)
        view = GroupView(context.coordinator, known({}), known({}), NO_TIMES.get, NO_TOPICS)
        steps = view.others()
        for _ in range(ITEMS_PER_STEP):
            next(steps)
        last = context.shard.queries.group_ids()[-1]
        del context.shard.groups[last]
        run_all(steps)
        run_all(view.unread())
        run_all(view.collect(page))
        text = b"".join(run_all(page.render(openmetrics=False))).decode()
        assert text.count("\nkafka_consumergroup_members{") == ITEMS_PER_STEP
