"""gregor.broker.cluster.auto_topics: topics that clients name before they exist, each created once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gregor.broker.cluster.auto_topics import TopicCreator
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.topic_names import GROUP_METADATA_TOPIC, REBALANCES_TOPIC, TRANSACTION_STATE_TOPIC


class Admin:
    """Creates a topic when the test allows it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, Mapping[str, str]]] = []
        self.go = asyncio.Event()
        self.error: KafkaError | None = None
        self.is_controller = True

    async def create_topic(self, name: str, partitions: int, factor: int, configs: Mapping[str, str]) -> None:
        self.asked.append((name, partitions, factor, configs))
        await self.go.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Requests:
    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, Mapping[str, str]]] = []

    async def create_topic(self, name: str, partitions: int, factor: int, configs: Mapping[str, str]) -> None:
        self.asked.append((name, partitions, factor, configs))


def creator(admin: Admin, requests: Requests | None = None, **settings: str) -> TopicCreator:
    config = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
    port: Any = admin
    way: Any = requests
    return TopicCreator(config, port, way)


def test_many_who_ask_make_one_topic(loop: asyncio.AbstractEventLoop) -> None:
    async def test() -> None:
        admin = Admin()
        topics = creator(admin, num_partitions="7", default_replication_factor="2")
        asking = [asyncio.ensure_future(topics.create("t")) for _ in range(5)]
        other = asyncio.ensure_future(topics.create("u"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert admin.asked == [("t", 7, 2, {}), ("u", 7, 2, {})]
        asking[0].cancel()
        admin.go.set()
        await asyncio.gather(*asking[1:], other)
        await topics.create("t")  # again, as if it had been deleted since
        assert len(admin.asked) == 3

    loop.run_until_complete(test())


@pytest.mark.parametrize(
    ("code", "raised"), [(ErrorCode.TOPIC_ALREADY_EXISTS, False), (ErrorCode.INVALID_REPLICATION_FACTOR, True)]
)
def test_all_who_asked_hear_of_an_error(loop: asyncio.AbstractEventLoop, code: ErrorCode, raised: bool) -> None:
    async def test() -> None:
        admin = Admin()
        admin.error = KafkaError(code)
        admin.go.set()
        topics = creator(admin)
        outcomes = await asyncio.gather(*[topics.create("t") for _ in range(3)], return_exceptions=True)
        assert [outcome.code if isinstance(outcome, KafkaError) else outcome for outcome in outcomes] == (
            [code if raised else None] * 3
        )
        # Another creation may follow.
        admin.error = None
        await topics.create("t")

    loop.run_until_complete(test())


def test_an_error_without_a_waiter_is_not_reported(loop: asyncio.AbstractEventLoop) -> None:
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def test() -> None:
        admin = Admin()
        admin.error = KafkaError(ErrorCode.INVALID_PARTITIONS)
        topics = creator(admin)
        asking = asyncio.ensure_future(topics.create("t"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(0)
        admin.go.set()
        for _ in range(3):
            await asyncio.sleep(0)
        admin.error = None
        await topics.create("t")  # a creation of its own: the failed one is over
        assert len(admin.asked) == 2

    loop.run_until_complete(test())
    assert reported == []


@pytest.mark.parametrize(("cluster", "factor"), [(False, 1), (True, 3)])
def test_the_offsets_topic(loop: asyncio.AbstractEventLoop, cluster: bool, factor: int) -> None:
    admin = Admin()
    admin.go.set()
    loop.run_until_complete(creator(admin, Requests() if cluster else None).create(GROUP_METADATA_TOPIC))
    ((name, partitions, replicas, configs),) = admin.asked
    assert (name, partitions, replicas) == (GROUP_METADATA_TOPIC, 50, factor)
    assert configs == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


def test_too_few_brokers_for_the_offsets_topic_is_said_but_not_each_time(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    admin = Admin()
    admin.error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    admin.go.set()
    topics = creator(admin, Requests())
    for _ in range(3):
        with pytest.raises(KafkaError):
            loop.run_until_complete(topics.create(GROUP_METADATA_TOPIC))
    assert caplog.text.count("offsets.topic.replication.factor") == 1


def test_another_broker_that_is_the_controller_is_asked(loop: asyncio.AbstractEventLoop) -> None:
    admin, requests = Admin(), Requests()
    admin.is_controller = False
    loop.run_until_complete(creator(admin, requests, num_partitions="4").create("t"))
    assert (admin.asked, requests.asked) == ([], [("t", 4, 1, {})])


COMPACTED = {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"}


@pytest.mark.parametrize(
    ("cluster", "settings", "factor", "min_isr"),
    [
        (False, {}, 1, "1"),
        (True, {}, 3, "2"),
        (False, {"transaction_state_log_min_isr": "2"}, 1, "2"),
        (False, {"transaction_state_log_replication_factor": "3"}, 3, "1"),
        (True, {"transaction_state_log_replication_factor": "1", "transaction_state_log_min_isr": "1"}, 1, "1"),
    ],
)
def test_topic_of_transactions(
    loop: asyncio.AbstractEventLoop, cluster: bool, settings: dict[str, str], factor: int, min_isr: str
) -> None:
    admin = Admin()
    admin.go.set()
    topics = creator(admin, Requests() if cluster else None, transaction_state_log_segment_bytes="777", **settings)
    loop.run_until_complete(topics.create(TRANSACTION_STATE_TOPIC))
    ((name, partitions, replicas, configs),) = admin.asked
    assert (name, partitions, replicas) == (TRANSACTION_STATE_TOPIC, 50, factor)
    assert configs == {**COMPACTED, "min.insync.replicas": min_isr, "segment.bytes": "777"}


def test_warning_names_the_setting_of_the_topic_that_waits(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    admin = Admin()
    admin.error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    admin.go.set()
    topics = creator(admin, Requests())
    for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
        with pytest.raises(KafkaError):
            loop.run_until_complete(topics.create(name))
    assert "set transaction.state.log.replication.factor to fewer" in caplog.text


@pytest.mark.parametrize(("cluster", "factor"), [(False, 1), (True, 3)])
def test_history_of_rebalances_is_a_small_compacted_topic(
    loop: asyncio.AbstractEventLoop, cluster: bool, factor: int
) -> None:
    admin = Admin()
    admin.go.set()
    loop.run_until_complete(creator(admin, Requests() if cluster else None).create(REBALANCES_TOPIC))
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert admin.asked == [(REBALANCES_TOPIC, 8, factor, configs)]
