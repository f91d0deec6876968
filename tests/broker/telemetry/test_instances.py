"""gregor.broker.telemetry.instances: intervals, errors, and the bounds of instances and series."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.telemetry import instances as module
from gregor.broker.telemetry.instances import (
    MAX_SERIES_OF_INSTANCE,
    MIN_EXPIRY_MS,
    SWEEP_MS,
    ClientInstance,
    ClientInstances,
)
from gregor.broker.telemetry.otlp import Point
from gregor.broker.telemetry.subscriptions import Subscriptions
from gregor.protocol.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000
INTERVAL_MS = 60_000


class World:
    def __init__(self, max_instances: int = 100) -> None:
        store: Any = SimpleNamespace()
        self.subscriptions = Subscriptions(store)
        self.subscribe("*")
        self.instances = ClientInstances(self.subscriptions, max_instances)
        self.now_ms = NOW_MS

    def subscribe(self, metrics: str) -> None:
        self.subscriptions.use({"a": {"metrics": metrics, "interval.ms": str(INTERVAL_MS)}})

    def instance(self, number: int = 1) -> ClientInstance:
        return self.instances.instance(number.to_bytes(16), {"client_id": str(number)}, self.now_ms)

    def get(self, number: int = 1) -> ErrorCode:
        return outcome(lambda: self.instances.check_get(self.instance(number), self.now_ms))

    def push(self, number: int = 1, **given: Any) -> ErrorCode:
        instance = self.instance(number)
        fields = {
            "subscription_id": instance.subscription_id,
            "terminating": False,
            "codec": 0,
            "size_bytes": 10,
            "max_bytes": 10,
            **given,
        }
        return outcome(lambda: self.instances.check_push(instance, self.now_ms, **fields))


def outcome(check: Any) -> ErrorCode:
    try:
        check()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.fixture
def world() -> World:
    return World()


def points(count: int, name: str = "m") -> list[Point]:
    return [Point(name, (("n", str(n)),), n, False, False) for n in range(count)]


def test_interval_between_requests(world: World) -> None:
    assert world.get() == ErrorCode.NONE
    assert world.get() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.push() == ErrorCode.NONE  # clients vary the first interval
    world.now_ms += INTERVAL_MS - 1
    assert world.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.get() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.now_ms += 1
    assert world.push() == ErrorCode.NONE
    assert world.instances.throttled == 3


def test_changed_subscriptions_may_be_fetched_at_once(world: World) -> None:
    assert world.get() == ErrorCode.NONE
    before = world.instance().subscription_id
    world.subscribe("org.a")
    assert world.push(subscription_id=before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert world.instances.unknown_subscriptions == 1
    world.subscribe("org.b")
    assert world.get() == ErrorCode.NONE
    assert world.instance().selection.metrics == ("org.b",)
    assert world.push() == ErrorCode.NONE


def test_last_push_may_come_early_and_none_follows(world: World) -> None:
    assert world.get() == world.push() == ErrorCode.NONE
    assert world.push(terminating=True) == ErrorCode.NONE
    assert world.push() == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size_bytes": 11}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"codec": 4, "size_bytes": 10}, ErrorCode.NONE),
    ],
)
def test_other_errors_of_a_push(world: World, given: dict[str, int], error: ErrorCode) -> None:
    assert world.push(**given) == error


def test_push_of_an_unknown_instance_is_served_when_it_knows_its_subscription(world: World) -> None:
    """A client whose broker has restarted, or that is connected to another one now."""
    assert world.push() == ErrorCode.NONE
    assert world.push(number=2, subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_oldest_makes_room_and_takes_its_series_along() -> None:
    world = World(max_instances=3)
    for number in (1, 2, 3):
        assert world.instances.keep(world.instance(number), points(10)) == 0
    world.instance(1)
    gone = world.instance(2)
    world.instance(1)
    world.instance(4)
    assert len(world.instances) == 3
    assert (3).to_bytes(16) not in world.instances
    assert world.instances.series_count == 20
    world.instance(5)
    assert world.instances.keep(gone, points(5)) == 5  # it was removed while its push was decoded
    assert world.instances.series_count == 10


def test_silent_instances_expire(world: World) -> None:
    world.subscriptions.use({"a": {"metrics": "*", "interval.ms": "100"}})
    world.instances.keep(world.instance(1), points(3))
    world.now_ms += SWEEP_MS
    world.instance(2)
    world.now_ms += MIN_EXPIRY_MS - SWEEP_MS
    world.instances.expire(world.now_ms)
    assert [one.attributes["client_id"] for one in world.instances] == ["2"]
    assert world.instances.series_count == 0


def test_series_are_bounded_for_one_and_for_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 1_500)
    assert world.instances.keep(world.instance(1), points(MAX_SERIES_OF_INSTANCE + 5)) == 5
    assert world.instances.keep(world.instance(2), points(600)) == 100
    assert world.instances.series_count == 1_500
    assert world.instances.keep(world.instance(1), points(10)) == 0
    assert world.instances.series_count == 510


def test_new_selection_keeps_the_series(world: World) -> None:
    world.instances.keep(world.instance(1), points(3))
    world.subscribe("org.a")
    assert len(world.instance(1).series) == 3
    assert world.instances.series_count == 3
