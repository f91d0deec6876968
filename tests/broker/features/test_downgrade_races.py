"""Updates of features by controllers that follow each other, in interleavings of their steps that a seed decides.

Three brokers follow the node of the features through stores of their own, which delay each call. Clients begin things
where a broker admits them. A controller may be replaced between any two steps, and learn of it later. These invariants
must hold: when the level falls to 0, nothing is left on any broker and none admits anything; when all updates have
ended, no phase of a downgrade is left, and the level is that of the last update that succeeded.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.features.downgrade import Broker, EndsWithLevel, FeatureDowngrade
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from gregor.replication.admin.features import FeatureAdmin, FeatureUpdate, UpgradeType
from gregor.replication.controller.context import Cluster, LiveBroker
from gregor.replication.store.features import (
    GROUP_VERSION,
    REGISTERED,
    FinalizedFeatures,
    create_feature_node,
    undo_downgrades,
)
from gregor.replication.store.metadata_store import BadVersion, Stat, WatchEvent
from gregor.replication.store.nodes import BrokerRegistration, decode_features, encode_features
from gregor.replication.store.time_limit import TimeLimit
from tests.replication.fakes import on_loop

BROKERS = 3
UPDATES = 4
SEEDS = 80
LONG_MS, NO_TIME_MS = 2_000, 0
STEP_S = 0.001
"""Between two readings of the loop's clock, one for each of its turns: time passes with the work alone."""
KINDS = (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE, UpgradeType.UPGRADE)


class World:
    """The node of the features, the brokers, and the tasks that run on their own."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.data, self.version = encode_features({GROUP_VERSION: 1}), 0
        self.watches: list[Callable[[WatchEvent], None]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.brokers = [ModelBroker(self, broker_id) for broker_id in range(BROKERS)]
        self.falls = 0
        self.clients_work = True

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def pause(self, longest: int = 6) -> None:
        for _ in range(self.dice.randrange(longest)):
            await asyncio.sleep(0)

    def written(self, data: bytes) -> None:
        before, after = (decode_features(one).levels for one in (self.data, data))
        if GROUP_VERSION in before and GROUP_VERSION not in after:
            self.falls += 1
            assert not [broker.broker_id for broker in self.brokers if broker.things or broker.admits()]
        self.data, self.version = data, self.version + 1
        watches, self.watches = self.watches, []
        for watch in watches:
            asyncio.get_running_loop().call_soon(watch, None)

    @property
    def phases(self) -> dict[str, Any]:
        return dict(decode_features(self.data).downgrades)


class DelayedStore:
    """The store as one broker sees it: each call is carried out, and answered, some time later."""

    def __init__(self, world: World) -> None:
        self.on_session_expired: list[Callable[[], None]] = []
        self._world = world

    def _stat(self) -> Stat:
        stat: Any = SimpleNamespace(version=self._world.version, czxid=1)
        return stat  # type: ignore[no-any-return]

    async def exists(self, _path: str, watch: Callable[[WatchEvent], None] | None = None) -> Stat:
        await self._world.pause()
        if watch is not None:
            self._world.watches.append(watch)
        found = self._stat()
        await self._world.pause()
        return found

    async def get(self, _path: str) -> tuple[bytes, Stat]:
        await self._world.pause()
        found = self._world.data, self._stat()
        await self._world.pause()
        return found

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        await self._world.pause()
        if version not in (-1, self._world.version):
            raise BadVersion(path)
        self._world.written(data)
        found = self._stat()
        await self._world.pause()
        return found


class ModelBroker:
    """Implements Subject on this broker, and Peer for the others."""

    feature, first_level, noun, left_text = GROUP_VERSION, 1, "things", "they end later"

    def __init__(self, world: World, broker_id: int) -> None:
        self.world, self.broker_id = world, broker_id
        self.things: list[str] = []
        self.controller: Any = SimpleNamespace(cluster=None)
        store: Any = DelayedStore(world)
        self.store = store
        self.features = FinalizedFeatures(store, world.spawn)
        config = BrokerConfig({"broker.id": str(broker_id), "log.dirs": "d"})
        endpoints = {
            one: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="", port=one)}) for one in range(BROKERS)
        }
        image: Any = SimpleNamespace(brokers=endpoints)
        gate: Any = None
        new_peer: Any = lambda _host, port: world.brokers[port]  # noqa: E731
        work = FeatureDowngrade(config, self.features, image, self, gate, new_peer=new_peer, poll_s=0)
        self.admin = FeatureAdmin(store, self.controller, self.features, {GROUP_VERSION: work}, in_cluster=True)

    def admits(self) -> bool:
        return self.features.admits_consumer_members()

    async def start(self) -> None:
        await self.features.start()
        EndsWithLevel(self.features, self, self.world.spawn)
        self.world.spawn(self.client())

    async def client(self) -> None:
        while self.world.clients_work:
            await self.world.pause(20)
            await asyncio.sleep(0)
            if self.admits() and len(self.things) < 2:
                self.things.append(f"thing of {self.broker_id}")
            elif self.things and self.world.dice.random() < 0.2:
                self.things.pop()

    async def end_here(self) -> None:
        await self.world.pause()
        self.things.clear()

    async def lost_on(self, broker: Broker) -> list[str]:
        return await self.left_on(broker, 0)

    async def left_on(self, broker: Broker, waited_ms: int) -> list[str]:
        await self.world.pause()
        return list(self.world.brokers[broker.broker_id].things)

    def refusal(self, names: set[str]) -> KafkaError:
        return KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def unfinished(self, names: set[str]) -> KafkaError:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    async def send(self, request: Any, version: int | None = None) -> Any:
        assert isinstance(request, ApiVersionsRequest)
        await self.world.pause()
        return ApiVersionsResponse(finalized_features_epoch=self.features.finalized.epoch)

    def close(self) -> None:
        """Each use is another connection."""


async def elect(world: World, winner: ModelBroker) -> None:
    """As a controller that is elected does; the one before learns of it sooner or later, or not at all before its next
    step."""
    live = {
        one: LiveBroker(BrokerRegistration(one, (), features=dict(REGISTERED)), 1)  # type: ignore[arg-type]
        for one in range(BROKERS)
    }
    deposed = [broker for broker in world.brokers if broker is not winner]
    for broker in deposed:
        if world.dice.random() < 0.5:
            broker.controller.cluster = None
    winner.controller.cluster = Cluster(winner.broker_id, 1, live)
    await create_feature_node(winner.store, {})
    await undo_downgrades(winner.store)
    await world.pause()
    for broker in deposed:
        broker.controller.cluster = None


async def update(world: World, succeeded: list[int]) -> None:
    await world.pause(60)
    kind = world.dice.choice(KINDS)
    level = int(kind is UpgradeType.UPGRADE)
    leaders = [broker for broker in world.brokers if broker.controller.cluster is not None]
    limit = TimeLimit(world.dice.choice((LONG_MS, LONG_MS, NO_TIME_MS)))
    try:
        await world.dice.choice(leaders).admin.update([FeatureUpdate(GROUP_VERSION, level, kind)], limit)
    except KafkaError:
        return
    succeeded.append(level)


async def play(seed: int) -> int:
    """Play one interleaving; return how often the level fell."""
    loop = asyncio.get_running_loop()
    clock = itertools.count(loop.time(), STEP_S)
    loop.time = lambda: next(clock)  # type: ignore[method-assign]
    world = World(seed)
    for broker in world.brokers:
        await broker.start()
    await elect(world, world.brokers[0])
    succeeded: list[int] = []
    updates = [asyncio.ensure_future(update(world, succeeded)) for _ in range(UPDATES)]
    for _ in range(world.dice.randrange(4)):
        await world.pause(80)
        await elect(world, world.dice.choice(world.brokers))
    await asyncio.gather(*updates)
    world.clients_work = False
    while world.tasks:
        await asyncio.gather(*world.tasks)
    assert world.phases == {}, "a phase is left, and no update is under way"
    level = decode_features(world.data).levels.get(GROUP_VERSION, 0)
    assert not succeeded or level in succeeded
    assert [broker.features.group_version() for broker in world.brokers] == [level] * BROKERS
    assert all(broker.admits() == bool(level) for broker in world.brokers)
    return world.falls


@pytest.mark.slow
@on_loop
async def test_no_interleaving_loses_a_thing_or_leaves_a_phase() -> None:
    falls = 0
    for seed in range(SEEDS):
        try:
            falls += await play(seed)
        except AssertionError as failure:
            failure.add_note(f"seed {seed}")
            raise
    assert falls, "the interleavings are about nothing"
