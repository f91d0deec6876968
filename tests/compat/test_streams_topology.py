"""Kafka Streams 4.3.1 with windows, joins, a table, a processor of its own and standby replicas, exactly once.

Of two instances one is killed; the other continues with its standby replicas of the stores.
"""

from __future__ import annotations

import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import read_to_end, reading
from tests.compat.records import until
from tests.compat.test_streams import WAIT_S, application, compiled
from tests.support.kafka import kafka_jars

pytestmark = [pytest.mark.compat, pytest.mark.jvm, pytest.mark.very_slow]

PARTITIONS = 2
USERS = {"ann": "Ann", "ben": "Ben", "cid": "Cid"}
START_MS = (int(time.time()) // 60 - 60) * 60_000
"""An hour ago: Streams keeps the changelog of a window for a day after its time."""
"""The begin of a minute."""
ORDERS = 40
"""In each part of the input, of which there are three, one each two seconds."""
MINUTE_MS = 60_000
INPUTS = ("orders", "payments", "users")
OUTPUTS = ("paid", "named", "minutes", "amounts", "totals")
MAIN = "compat.Orders"

Unique = Callable[[str], str]


class Order(NamedTuple):
    number: int

    @property
    def name(self) -> str:
        return f"o{self.number}"

    @property
    def user(self) -> str:
        return list(USERS)[self.number % len(USERS)]

    @property
    def amount(self) -> int:
        return 1 + self.number % 7

    @property
    def time_ms(self) -> int:
        return START_MS + 2000 * self.number


class Shop:
    """The input of the application, and what has to be in its output."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.orders: list[Order] = []
        self._bootstrap = bootstrap
        # The partitioner of Streams: keys that are joined are in partitions of the same number.
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 0})
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        # The times of the records are past the usual retention.
        topics = [
            NewTopic(f"{name}-{topic}", PARTITIONS, 1, config={"retention.ms": "-1"}) for topic in (*INPUTS, *OUTPUTS)
        ]
        for future in admin.create_topics(topics).values():
            future.result(WAIT_S)
        for key, user in USERS.items():
            self._send("users", key, user, START_MS - 1)
        assert self._producer.flush(WAIT_S) == 0

    def _send(self, topic: str, key: str, value: str, time_ms: int) -> None:
        self._producer.produce(f"{self.name}-{topic}", value, key, timestamp=time_ms)

    def sell(self) -> None:
        new = [Order(number) for number in range(len(self.orders), len(self.orders) + ORDERS)]
        for order in new:
            self._send("orders", order.name, f"{order.user}:{order.amount}", order.time_ms)
            self._send("payments", order.name, f"paid {order.number}", order.time_ms + 1000)
        assert self._producer.flush(WAIT_S) == 0
        self.orders += new

    def output(self, topic: str) -> list[tuple[str, str]]:
        """Return the committed records of the topic, those of a key in their order."""
        consumer = reading(self._bootstrap, **{"isolation.level": "read_committed"})
        try:
            found = [
                one for part in range(PARTITIONS) for one in read_to_end(consumer, f"{self.name}-{topic}", 0, part)
            ]
        finally:
            consumer.close()
        return [((one.key() or b"").decode(), (one.value() or b"").decode()) for one in found]

    def until_processed(self) -> None:
        count = len(self.orders)
        for topic in OUTPUTS:
            until(lambda topic=topic: len(self.output(topic)) >= count, f"{topic}", WAIT_S)  # type: ignore[misc]

    def judge(self) -> None:
        """Compare each output with the input: nothing is missing, nothing is there twice."""
        assert Counter(self.output("paid")) == Counter(
            (order.name, f"{order.user}:{order.amount} paid {order.number}") for order in self.orders
        )
        assert Counter(self.output("named")) == Counter(
            (order.user, f"{USERS[order.user]} {order.name} {order.amount}") for order in self.orders
        )
        minutes = Counter(f"{order.user}@{order.time_ms - order.time_ms % MINUTE_MS}" for order in self.orders)
        counted: dict[str, list[int]] = {}
        for key, value in self.output("minutes"):
            counted.setdefault(key, []).append(int(value))
        assert counted == {key: list(range(1, count + 1)) for key, count in minutes.items()}
        amounts, totals = self.output("amounts"), self.output("totals")
        for user in USERS:
            expected, total = [], 0
            for key, value in amounts:
                if key == user:
                    total += int(value.split()[1])
                    expected.append(total)
            assert [int(value) for key, value in totals if key == user] == expected
            assert total == sum(order.amount for order in self.orders if order.user == user)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield compiled(tmp_path_factory.mktemp("streams"), "streams/Orders.java", kafka_jars())


def test_killed_instance_is_replaced_by_its_standby(
    bootstrap: str, unique: Unique, classes: str, tmp_path: pathlib.Path
) -> None:
    shop = Shop(bootstrap, unique("shop"))
    states = [str(tmp_path / name) for name in ("one", "two")]
    with application(classes, bootstrap, shop.name, states[0], main_class=MAIN) as first:
        shop.sell()
        first.wait_for("RUNNING")
        with application(classes, bootstrap, shop.name, states[1], main_class=MAIN) as second:
            second.wait_for("RUNNING")
            shop.until_processed()
            shop.sell()
            first.kill()
            shop.sell()
            shop.until_processed()
            second.stop()
    shop.judge()
