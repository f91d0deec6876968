"""Updates of features run one at a time, and a repeated one waits for the end of the running one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gregor.broker.features.updates import FeatureUpdates
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.features import FeatureUpdate, UpgradeType
from gregor.replication.store.time_limit import TimeLimit
from tests.replication.fakes import on_loop

DOWN = [FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE)]
UNSAFE = [FeatureUpdate("group.version", 0, UpgradeType.UNSAFE_DOWNGRADE)]


class Admin:
    """A FeatureAdmin whose updates end when the test lets them."""

    def __init__(self) -> None:
        self.begun: list[tuple[Sequence[FeatureUpdate], TimeLimit, asyncio.Future[None]]] = []
        self.validated = 0

    async def update(self, updates: Sequence[FeatureUpdate], limit: TimeLimit) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun.append((updates, limit, ended))
        await ended

    async def validate(self, _updates: Sequence[FeatureUpdate], _limit: TimeLimit) -> None:
        self.validated += 1


class Subject:
    def __init__(self) -> None:
        self.admin: Any = Admin()
        self.tasks: list[asyncio.Task[None]] = []
        self.updates = FeatureUpdates(self.admin, lambda work: self.tasks.append(asyncio.ensure_future(work)))

    async def call(self, updates: list[FeatureUpdate], timeout_ms: int = 30_000) -> asyncio.Task[None]:
        """Begin an update, and return when it waits."""
        call = asyncio.create_task(self.updates.update(updates, timeout_ms))
        for _ in range(5):
            await asyncio.sleep(0)
        return call


@on_loop
async def test_repeated_update_waits_for_the_end_of_the_running_one() -> None:
    tested = Subject()
    first = await tested.call(DOWN, 10_000)
    ((_, limit, ended),) = tested.admin.begun
    again = await tested.call(DOWN, 50_000)
    assert len(tested.admin.begun) == 1 and not again.done()
    assert 40_000 < limit.left_ms <= 50_000, "the limit of the later request counts"
    ended.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "group g is left"))
    for call in (first, again):
        with pytest.raises(KafkaError, match="group g is left"):
            await call
    third = await tested.call(DOWN)
    tested.admin.begun[1][2].set_result(None)
    await third


@on_loop
async def test_update_goes_on_without_its_client() -> None:
    tested = Subject()
    first = await tested.call(DOWN)
    first.cancel()
    again = await tested.call(DOWN)
    assert len(tested.admin.begun) == 1
    tested.admin.begun[0][2].set_result(None)
    await again


@on_loop
async def test_other_update_begins_after_the_running_one() -> None:
    tested = Subject()
    first, other = await tested.call(DOWN), await tested.call(UNSAFE)
    assert [updates for updates, _, _ in tested.admin.begun] == [DOWN]
    with pytest.raises(KafkaError, match=r"another update of features \(group.version\)") as error:
        await tested.updates.update(UNSAFE, 0)
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
    await tested.updates.update(DOWN, 0, validate_only=True)
    assert tested.admin.validated == 1
    tested.admin.begun[0][2].set_exception(KafkaError(ErrorCode.NON_EMPTY_GROUP))
    with pytest.raises(KafkaError):
        await first
    await tested.call(DOWN)
    assert [updates for updates, _, _ in tested.admin.begun] == [DOWN, UNSAFE]
    tested.admin.begun[1][2].set_result(None)
    await other


@on_loop
async def test_calls_end_with_the_broker() -> None:
    tested = Subject()
    call = await tested.call(DOWN)
    tested.tasks[0].cancel()
    with pytest.raises(KafkaError) as error:
        await call
    assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
