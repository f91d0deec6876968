"""Updates of finalised features: what is refused, and what is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.features import FeatureAdmin, FeatureUpdate, UpgradeType, updated
from gregor.replication.controller.context import Cluster, LiveBroker
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.features import REGISTERED, FinalizedFeatures, undo_downgrades
from gregor.replication.store.nodes import BrokerRegistration, DowngradePhase
from gregor.replication.store.time_limit import TimeLimit
from tests.replication.fakes import on_loop

GROUPS, TRANSACTIONS = "group.version", "transaction.version"
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def live(*features: Any) -> dict[int, LiveBroker]:
    return {
        broker_id: LiveBroker(BrokerRegistration(broker_id, (), features=registered), 1)
        for broker_id, registered in enumerate(features)
    }


OURS = live(REGISTERED, REGISTERED)


def refused(levels: dict[str, int], update: FeatureUpdate, brokers: dict[int, LiveBroker] = OURS) -> str:
    with pytest.raises(KafkaError) as error:
        updated(levels, [update], brokers)
    assert error.value.code == ErrorCode.INVALID_UPDATE_VERSION
    return error.value.message


@pytest.mark.parametrize(
    ("present", "level", "kind"), [(0, 1, UPGRADE), (1, 2, UPGRADE), (2, 2, UPGRADE), (2, 1, SAFE), (2, 0, UNSAFE)]
)
def test_level_changes_within_what_is_served(present: int, level: int, kind: UpgradeType) -> None:
    levels = {TRANSACTIONS: present} if present else {}
    after = updated(levels, [FeatureUpdate(TRANSACTIONS, level, kind)], OURS)
    assert after == ({TRANSACTIONS: level} if level else {})


def test_refused_levels() -> None:
    assert "controller does not know" in refused({}, FeatureUpdate("metadata.version", 20))
    assert "controller does not know" in refused({}, FeatureUpdate("", 1))
    assert "levels 0 to 2" in refused({}, FeatureUpdate(TRANSACTIONS, 3))
    assert "below 0" in refused({TRANSACTIONS: 1}, FeatureUpdate(TRANSACTIONS, -1, UNSAFE))
    assert "upgrade type is unknown" in refused({}, FeatureUpdate(TRANSACTIONS, 1, UpgradeType.UNKNOWN))
    assert "present level is 2" in refused({TRANSACTIONS: 2}, FeatureUpdate(TRANSACTIONS, 1))
    assert "present level is 1" in refused({TRANSACTIONS: 1}, FeatureUpdate(TRANSACTIONS, 2, SAFE))


@pytest.mark.parametrize(
    "registered", [{}, {TRANSACTIONS: 2}, {TRANSACTIONS: {}}, {TRANSACTIONS: {"min_version": 1, "max_version": 1}}]
)
def test_every_live_broker_must_serve_the_level(registered: Any) -> None:
    brokers = live(REGISTERED, registered, registered)
    message = refused({}, FeatureUpdate(TRANSACTIONS, 2), brokers)
    assert "Broker 1, 2 does not serve it" in message and "3.9" in message
    # That the feature ends is served by all.
    assert updated({TRANSACTIONS: 2}, [FeatureUpdate(TRANSACTIONS, 0, SAFE)], brokers) == {}


def test_feature_named_twice_is_refused() -> None:
    with pytest.raises(KafkaError, match="named twice") as error:
        updated({}, [FeatureUpdate(TRANSACTIONS, 1), FeatureUpdate(TRANSACTIONS, 2)], OURS)
    assert error.value.code == ErrorCode.INVALID_REQUEST


Works = Callable[[int, TimeLimit], Awaitable[None]]


class Work:
    """The work of one feature; it notes the phase, the levels in force and those of the node."""

    def __init__(self, tested: Subject, name: str) -> None:
        self.tested = tested
        self.name = name
        self.in_check: Works | None = None
        self.in_end: Works | None = None

    async def check(self, epoch: int, limit: TimeLimit) -> None:
        await self._note("check", epoch, limit, self.in_check)

    async def end(self, epoch: int, limit: TimeLimit) -> None:
        await self._note("end", epoch, limit, self.in_end)

    async def _note(self, call: str, epoch: int, limit: TimeLimit, then: Works | None) -> None:
        data, version = await self.tested.node()
        assert epoch == version == self.tested.features.finalized.epoch
        assert 0 < limit.left_ms <= 5000
        _, levels, phases = nodes.decode_features(data)
        self.tested.seen.append((self.name, call, dict(self.tested.features.finalized.levels), levels, dict(phases)))
        if then is not None:
            await then(epoch, limit)


class Subject:
    """The updates of a controller, on a store of its own."""

    def __init__(self, store: EmbeddedStore, brokers: dict[int, LiveBroker], in_cluster: bool) -> None:
        self.store = store
        self.controller: Any = SimpleNamespace(cluster=Cluster(0, 1, brokers))
        self.features = FinalizedFeatures(store, lambda work: work.close())
        self.seen: list[Any] = []
        self.works = {name: Work(self, name) for name in (GROUPS, TRANSACTIONS)}
        self.admin = FeatureAdmin(store, self.controller, self.features, self.works, in_cluster=in_cluster)

    async def update(self, level: int, kind: UpgradeType = UPGRADE, name: str = TRANSACTIONS) -> None:
        await self.admin.update([FeatureUpdate(name, level, kind)], TimeLimit(5000))

    async def node(self) -> tuple[bytes, int]:
        found = await self.store.get(nodes.FEATURE)
        assert found is not None
        return found[0], found[1].version


async def subject(folder: Path, brokers: dict[int, LiveBroker] = OURS, *, in_cluster: bool = True) -> Subject:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    made = Subject(store, brokers, in_cluster)
    await made.features.start()
    return made


@on_loop
async def test_level_is_written_and_in_force_on_return(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tested = await subject(tmp_path)
    await tested.update(2)
    assert await tested.node() == (nodes.encode_features({TRANSACTIONS: 2}), 1)
    assert tested.features.finalized == (1, {TRANSACTIONS: 2})
    assert "3.9 or older cannot start" in caplog.text
    await tested.update(2)
    assert (await tested.node())[1] == 1, "nothing to change"
    await tested.update(0, SAFE)
    assert await tested.node() == (nodes.encode_features({}), 4)
    assert tested.features.finalized == (4, {})
    await tested.store.close()


@on_loop
async def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.admin.validate([FeatureUpdate(TRANSACTIONS, 2)], TimeLimit())
    assert await tested.node() == (nodes.encode_features({}), 0)
    with pytest.raises(KafkaError, match="levels 0 to 2"):
        await tested.admin.validate([FeatureUpdate(TRANSACTIONS, 3)], TimeLimit())
    await tested.store.close()


@on_loop
async def test_single_broker_is_not_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tested = await subject(tmp_path, live(REGISTERED), in_cluster=False)
    await tested.update(2)
    assert "3.9" not in caplog.text
    await tested.store.close()


@on_loop
async def test_features_fall_in_phases_and_then_the_levels_are_written(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    both = [FeatureUpdate(GROUPS, 1), FeatureUpdate(TRANSACTIONS, 2)]
    levels = {GROUPS: 1, TRANSACTIONS: 2}
    await tested.admin.update(both, TimeLimit(5000))
    assert tested.features.admits_consumer_members()
    await tested.admin.update([update._replace(level=0, kind=SAFE) for update in both], TimeLimit(5000))
    closing, ending = ({name: phase for name in levels} for phase in (DowngradePhase.CLOSING, DowngradePhase.ENDING))
    # The node names the features to the end, so that no broker starts meanwhile that does not know them.
    assert tested.seen == [
        (GROUPS, "check", levels, levels, closing),
        (TRANSACTIONS, "check", levels, levels, closing),
        (GROUPS, "end", {}, levels, ending),
        (TRANSACTIONS, "end", {}, levels, ending),
    ]
    assert await tested.node() == (nodes.encode_features({}), 4)
    await tested.store.close()


@on_loop
async def test_unsafe_downgrade_has_no_check_and_other_levels_no_phases(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(2)
    await tested.update(1, SAFE)
    assert tested.seen == []
    await tested.update(0, UNSAFE)
    ((name, call, in_force, of_node, phases),) = tested.seen
    assert (name, call, in_force, of_node) == (TRANSACTIONS, "end", {}, {TRANSACTIONS: 1})
    assert phases == {TRANSACTIONS: DowngradePhase.ENDING}
    await tested.store.close()


@pytest.mark.parametrize("call", ["in_check", "in_end"])
@on_loop
async def test_downgrade_that_fails_is_undone(tmp_path: Path, call: str) -> None:
    tested = await subject(tmp_path)
    await tested.update(1, name=GROUPS)
    before = tested.features.finalized

    async def fail(_epoch: int, _limit: TimeLimit) -> None:
        assert not tested.features.admits_consumer_members()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "group g is not converted")

    setattr(tested.works[GROUPS], call, fail)
    with pytest.raises(KafkaError, match=r"group.version stays at 1.*group g is not converted") as error:
        await tested.update(0, SAFE, GROUPS)
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert (await tested.node())[0] == nodes.encode_features({GROUPS: 1})
    assert tested.features.finalized.levels == before.levels and tested.features.finalized.epoch > before.epoch
    assert tested.features.admits_consumer_members()
    await tested.store.close()


@on_loop
async def test_phase_that_was_written_after_the_next_election_is_undone_by_its_writer(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(1, name=GROUPS)

    async def resign(_epoch: int, _limit: TimeLimit) -> None:
        tested.controller.cluster = None
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    tested.works[GROUPS].in_end = resign
    with pytest.raises(KafkaError):
        await tested.update(0, SAFE, GROUPS)
    assert (await tested.node())[0] == nodes.encode_features({GROUPS: 1})
    assert tested.features.admits_consumer_members()
    await tested.store.close()


@on_loop
async def test_downgrade_of_a_controller_that_is_no_longer_one_is_undone_by_the_next(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(1, name=GROUPS)

    async def resign(_epoch: int, _limit: TimeLimit) -> None:
        tested.controller.cluster = None
        await tested.store.set(nodes.FEATURE, (await tested.node())[0])
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    tested.works[GROUPS].in_end = resign
    with pytest.raises(KafkaError):
        await tested.update(0, SAFE, GROUPS)
    assert nodes.decode_features((await tested.node())[0]).downgrades == {GROUPS: DowngradePhase.ENDING}
    assert tested.features.group_version() == 0
    later = FinalizedFeatures(tested.store, lambda work: work.close())
    await later.start()
    assert later.group_version() == 0, "also in a broker that starts meanwhile"
    await undo_downgrades(tested.store)
    await tested.features.refresh()
    assert tested.features.admits_consumer_members()
    await undo_downgrades(tested.store)
    assert (await tested.node())[1] == tested.features.finalized.epoch, "nothing is left to undo"
    await tested.store.close()


@on_loop
async def test_another_write_in_between_is_read_first(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    real = tested.store.set

    async def after_another(path: str, data: bytes, version: int = -1) -> Any:
        tested.store.set = real  # type: ignore[method-assign]
        await real(path, nodes.encode_features({GROUPS: 1}))
        return await real(path, data, version)

    tested.store.set = after_another  # type: ignore[method-assign]
    await tested.update(2)
    assert await tested.node() == (nodes.encode_features({GROUPS: 1, TRANSACTIONS: 2}), 2)
    await tested.store.close()


@pytest.mark.parametrize("call", ["in_check", "in_end"])
@on_loop
async def test_a_downgrade_that_waits_does_not_undo_a_later_upgrade(tmp_path: Path, call: str) -> None:
    tested = await subject(tmp_path)
    await tested.update(1)

    async def upgrade(_epoch: int, _limit: TimeLimit) -> None:
        await tested.store.set(nodes.FEATURE, nodes.encode_features({TRANSACTIONS: 2}))

    setattr(tested.works[TRANSACTIONS], call, upgrade)
    with pytest.raises(KafkaError, match="changed meanwhile, to transaction.version=2") as error:
        await tested.update(0, SAFE)
    assert error.value.code == ErrorCode.FEATURE_UPDATE_FAILED
    assert (await tested.node())[0] == nodes.encode_features({TRANSACTIONS: 2})
    await tested.store.close()


@on_loop
async def test_version_of_a_node_created_again_rises_above_the_epoch(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    for level, kind in ((1, UPGRADE), (2, UPGRADE), (0, SAFE)):
        await tested.update(level, kind)
    await tested.store.delete(nodes.FEATURE)
    await tested.update(2)
    assert await tested.node() == (nodes.encode_features({TRANSACTIONS: 2}), 6)
    assert tested.features.finalized == (6, {TRANSACTIONS: 2})
    await tested.store.close()


@on_loop
async def test_broken_node_and_other_controller(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.store.create(nodes.FEATURE, b"?")
    with pytest.raises(KafkaError, match="cannot be decoded") as error:
        await tested.update(2)
    assert error.value.code == ErrorCode.FEATURE_UPDATE_FAILED
    tested.controller.cluster = None
    with pytest.raises(KafkaError) as error:
        await tested.update(2)
    assert error.value.code == ErrorCode.NOT_CONTROLLER
    await tested.store.close()
