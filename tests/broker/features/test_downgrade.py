"""Each broker ends what a level no longer admits, and a downgrade waits for all of them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.features.downgrade import Broker, EndsWithLevel
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.channels.peer import PeerError
from gregor.replication.store.time_limit import TimeLimit
from tests.broker.features.brokers import EPOCH, OtherBroker, downgrade_on
from tests.replication.fakes import on_loop


class Things:
    """A subject of a downgrade; `left` and `lost` are the names on all brokers, one list a round."""

    feature, first_level, noun, left_text = "thing.version", 2, "things", "they end later"

    def __init__(self, left: list[Any] | None = None, lost: list[Any] | None = None) -> None:
        self.left, self.lost = left or [[]], lost or [[]]
        self.ends: list[Any] = [None]
        self.ended = 0
        self.calls: list[int] = []

    async def end_here(self) -> None:
        self.ended += 1
        outcome = _next(self.ends)
        if outcome == "stuck":
            await asyncio.Event().wait()

    async def lost_on(self, broker: Broker) -> list[str]:
        return self._names(broker, self.lost)

    async def left_on(self, broker: Broker, waited_ms: int) -> list[str]:
        return self._names(broker, self.left)

    def _names(self, broker: Broker, names: list[Any]) -> list[str]:
        self.calls.append(broker.broker_id)
        found: list[str] = _next(names)
        return found

    def refusal(self, names: set[str]) -> KafkaError:
        return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"lost: {sorted(names)}")

    def unfinished(self, names: set[str]) -> KafkaError:
        return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"left: {sorted(names)}")


def _next(outcomes: list[Any]) -> Any:
    outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@on_loop
async def test_nothing_is_counted_before_a_broker_is_in_the_phase() -> None:
    late, things = OtherBroker((EPOCH - 1, EPOCH - 1, EPOCH)), Things()
    await downgrade_on(things, OtherBroker(), late).end(EPOCH, TimeLimit(10_000))
    assert things.calls == [0, 1, 2]
    assert (things.ended, late.epochs, late.closed) == (1, [EPOCH], True)
    things = Things()
    with pytest.raises(KafkaError, match="the things of broker 1 are not known: .* the epoch 6, not 7") as error:
        await downgrade_on(things, OtherBroker((EPOCH - 1,))).check(EPOCH, TimeLimit(0))
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE
    assert things.calls == [0]


@on_loop
async def test_check_refuses_what_would_be_lost_on_any_broker() -> None:
    things = Things(lost=[["a"], ["b", "a"]])
    with pytest.raises(KafkaError, match=r"lost: \['a', 'b'\]"):
        await downgrade_on(things, OtherBroker()).check(EPOCH, TimeLimit(10_000))
    assert things.ended == 0
    await downgrade_on(Things(), OtherBroker()).check(EPOCH, TimeLimit(10_000))


@on_loop
async def test_end_waits_until_nothing_is_left_on_any_broker() -> None:
    things = Things(left=[["a"], PeerError("refused"), ["b"], [], []])
    await downgrade_on(things, OtherBroker()).end(EPOCH, TimeLimit(10_000))
    assert things.calls == [0, 1, 1, 0, 1]
    with pytest.raises(KafkaError, match=r"left: \['a'\]"):
        await downgrade_on(Things(left=[["a"]]), OtherBroker()).end(EPOCH, TimeLimit(0))
    with pytest.raises(KafkaError, match="broker 0 are not known: refused") as error:
        await downgrade_on(Things(left=[PeerError("refused")])).end(EPOCH, TimeLimit(0))
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE


@on_loop
async def test_own_coordinator_ends_in_time_or_the_downgrade_fails() -> None:
    loads = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")
    things = Things()
    things.ends = [loads, loads, None]
    await downgrade_on(things).end(EPOCH, TimeLimit(10_000))
    assert things.ended == 3
    things.ends = [loads]
    with pytest.raises(KafkaError, match="it loads"):
        await downgrade_on(things).end(EPOCH, TimeLimit(0))
    things.ends = ["stuck"]
    async with asyncio.timeout(30):
        with pytest.raises(KafkaError, match=r"left: \[\]"):
            await downgrade_on(things).end(EPOCH, TimeLimit(20))


@on_loop
async def test_request_that_joins_later_extends_the_wait() -> None:
    things, limit = Things(left=[["a"]]), TimeLimit(0)
    limit.extend(TimeLimit(30_000))
    ending = asyncio.create_task(downgrade_on(things).end(EPOCH, limit))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done() and len(things.calls) > 1
    things.left.append([])
    await ending


def test_level_that_falls_ends_what_is_on_each_broker(caplog: pytest.LogCaptureFixture) -> None:
    levels = [2]
    features: Any = SimpleNamespace(level=lambda _name: levels[-1], on_changed=[])
    things: Any = Things()
    things.ends = [KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")]
    EndsWithLevel(features, things, asyncio.run)
    (changed,) = features.on_changed
    with caplog.at_level(logging.WARNING):
        for level, ended in ((2, 0), (1, 1), (0, 1), (2, 1), (0, 2)):
            levels.append(level)
            changed()
            assert things.ended == ended
    assert "things are left after the downgrade of thing.version: " in caplog.text
    assert "they end later" in caplog.text
