"""Updates of finalised features: what is refused, and what is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.features import (
    Downgrade,
    DowngradeStep,
    DowngradeSteps,
    FeatureAdmin,
    FeatureUpdate,
    UpgradeType,
    updated,
)
from gregor.replication.controller.context import Cluster, LiveBroker
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.features import REGISTERED, FinalizedFeatures, create_feature_node
from gregor.replication.store.nodes import BrokerRegistration
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


class Subject:
    """The updates of a controller, on a store of its own."""

    def __init__(self, store: EmbeddedStore, brokers: dict[int, LiveBroker], in_cluster: bool) -> None:
        self.store = store
        self.before_downgrade: list[DowngradeStep] = []
        self.after_downgrade: list[DowngradeStep] = []
        self.controller: Any = SimpleNamespace(cluster=Cluster(0, 1, brokers))
        self.features = FinalizedFeatures(store, lambda work: work.close())
        steps = DowngradeSteps(self.before_downgrade, self.after_downgrade)
        self.admin = FeatureAdmin(store, self.controller, self.features, steps, in_cluster=in_cluster)

    async def update(self, level: int, kind: UpgradeType = UPGRADE, **options: Any) -> None:
        await self.admin.update([FeatureUpdate(TRANSACTIONS, level, kind)], 5000, **options)

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
    assert await tested.node() == (nodes.encode_features({}), 3)
    assert tested.features.finalized == (3, {})
    await tested.store.close()


@on_loop
async def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(2, validate_only=True)
    assert await tested.node() == (nodes.encode_features({}), 0)
    with pytest.raises(KafkaError, match="levels 0 to 2"):
        await tested.update(3, validate_only=True)
    await tested.store.close()


@on_loop
async def test_single_broker_is_not_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tested = await subject(tmp_path, live(REGISTERED), in_cluster=False)
    await tested.update(2)
    assert "3.9" not in caplog.text
    await tested.store.close()


@on_loop
async def test_transactions_end_before_the_level_falls(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    seen: list[tuple[str, int, int, bool, int]] = []

    async def prepare(downgrade: Downgrade, timeout_ms: int) -> None:
        assert 0 < timeout_ms <= 5000
        seen.append((*downgrade, tested.features.transaction_version()))

    tested.before_downgrade.append(prepare)
    await tested.update(2)
    await tested.update(2, UNSAFE)
    assert seen == []
    await tested.update(1, SAFE)
    await tested.update(2)
    await tested.update(0, UNSAFE)
    # The level that is in force meanwhile keeps brokers out that do not know the feature.
    assert seen == [(TRANSACTIONS, 2, 1, True, 2), (TRANSACTIONS, 1, 0, False, 1)]
    await tested.store.close()


@on_loop
async def test_downgrade_that_fails_leaves_the_level(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(2)

    async def prepare(_downgrade: Downgrade, _timeout_ms: int) -> None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "transaction a is open")

    tested.before_downgrade.append(prepare)
    with pytest.raises(KafkaError, match="stays at 1.*transaction a is open") as error:
        await tested.update(0, SAFE)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tested.features.transaction_version() == 1
    await tested.store.close()


@on_loop
async def test_each_feature_falls_after_its_preparation(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    both = [FeatureUpdate(TRANSACTIONS, 2), FeatureUpdate(GROUPS, 1)]
    await tested.admin.update(both, 5000)
    seen: list[tuple[str, int, dict[str, int]]] = []

    async def prepare(downgrade: Downgrade, _timeout_ms: int) -> None:
        seen.append((downgrade.name, downgrade.level, dict(tested.features.finalized.levels)))

    async def complete(downgrade: Downgrade, _timeout_ms: int) -> None:
        seen.append((downgrade.name, downgrade.after, dict(tested.features.finalized.levels)))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "group g is not converted")

    tested.before_downgrade.append(prepare)
    tested.after_downgrade.append(complete)
    with pytest.raises(KafkaError, match="group.version is at 0, but group g is not converted") as error:
        await tested.admin.update([update._replace(level=0, kind=SAFE) for update in both], 5000)
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
    between = {GROUPS: 1, TRANSACTIONS: 1}
    assert seen == [(GROUPS, 1, between), (TRANSACTIONS, 1, between), (GROUPS, 0, {})]
    await tested.store.close()


@on_loop
async def test_another_write_in_between_is_read_first(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await create_feature_node(tested.store, {TRANSACTIONS: 2})

    async def prepare(_downgrade: Downgrade, _timeout_ms: int) -> None:
        tested.before_downgrade.clear()
        await tested.store.set(nodes.FEATURE, nodes.encode_features({TRANSACTIONS: 2}))

    tested.before_downgrade.append(prepare)
    await tested.update(1, SAFE)
    assert await tested.node() == (nodes.encode_features({TRANSACTIONS: 1}), 2)
    await tested.store.close()


@on_loop
async def test_a_downgrade_that_waits_does_not_undo_a_later_upgrade(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    await tested.update(2)

    async def prepare(_downgrade: Downgrade, _timeout_ms: int) -> None:
        tested.before_downgrade.clear()
        await tested.update(2)

    tested.before_downgrade.append(prepare)
    with pytest.raises(KafkaError, match="changed meanwhile, to transaction.version=2") as error:
        await tested.update(0, SAFE)
    assert error.value.code == ErrorCode.FEATURE_UPDATE_FAILED
    assert tested.features.transaction_version() == 2
    await tested.store.close()


@on_loop
async def test_version_of_a_node_created_again_rises_above_the_epoch(tmp_path: Path) -> None:
    tested = await subject(tmp_path)
    for level, kind in ((1, UPGRADE), (2, UPGRADE), (0, SAFE)):
        await tested.update(level, kind)
    await tested.store.delete(nodes.FEATURE)
    await tested.update(2)
    assert await tested.node() == (nodes.encode_features({TRANSACTIONS: 2}), 5)
    assert tested.features.finalized == (5, {TRANSACTIONS: 2})
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
