"""Requests that change the finalised feature levels (UpdateFeatures), as Apache Kafka 4.3's FeatureControlManager.

All updates of a request are made or none. Every live broker must serve the new level, by the features in its
registration: those of Apache Kafka 3.9 and of older releases of gregor register none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.controller_wait import Controller, present_context
from gregor.replication.controller.context import LiveBroker
from gregor.replication.store.features import SUPPORTED, FinalizedFeatures, create_feature_node, undo_downgrades
from gregor.replication.store.metadata_store import BadVersion, MetadataStore, NoNode, Stat
from gregor.replication.store.nodes import (
    FEATURE,
    NO_DOWNGRADES,
    DowngradePhase,
    FeatureLevels,
    NodeFormatError,
    decode_features,
    encode_features,
)
from gregor.replication.store.time_limit import TimeLimit

_log = logging.getLogger(__name__)


class UpgradeType(IntEnum):
    """The kind of change that a client allows. (Kafka's FeatureUpdate.UpgradeType.)"""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    kind: UpgradeType = UpgradeType.UPGRADE


class DowngradeWork(Protocol):
    """The work on all brokers before the level of a feature is 0. Methods raise KafkaError, with which the level
    remains; `epoch` is that of the features from which on a broker is in the phase."""

    async def check(self, epoch: int, limit: TimeLimit) -> None:
        """Phase CLOSING, of a safe downgrade: raise KafkaError if the downgrade would lose anything."""

    async def end(self, epoch: int, limit: TimeLimit) -> None:
        """Phase ENDING: return when nothing is left on any broker."""


NO_WORK: Mapping[str, DowngradeWork] = {}


def updated(
    levels: Mapping[str, int], updates: Sequence[FeatureUpdate], brokers: Mapping[int, LiveBroker]
) -> dict[str, int]:
    """Return the levels after these updates, without features of level 0. Raises KafkaError INVALID_UPDATE_VERSION, and
    INVALID_REQUEST for a feature that is named twice."""
    after = dict(levels)
    named: set[str] = set()
    for update in updates:
        if update.name in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.name} is named twice")
        named.add(update.name)
        reason = _refusal(update, levels.get(update.name, 0), brokers)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {reason}",
            )
        after[update.name] = update.level
    return {name: level for name, level in after.items() if level}


def _names(levels: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={level}" for name, level in sorted(levels.items())) or "none"


def _refusal(update: FeatureUpdate, present: int, brokers: Mapping[int, LiveBroker]) -> str | None:
    level = update.level
    if update.kind == UpgradeType.UNKNOWN:
        return "The upgrade type is unknown."
    if level < 0:
        return "A feature level cannot be below 0."
    if update.name not in SUPPORTED:
        return "The controller does not know this feature."
    lowest, highest = SUPPORTED[update.name]
    if level and not lowest <= level <= highest:
        return f"The controller serves the levels {lowest} to {highest}."
    lacking = [id_ for id_, broker in sorted(brokers.items()) if not _serves(broker, update.name, level)]
    if lacking:
        return (
            f"Broker {', '.join(map(str, lacking))} does not serve it, by the features of its registration: replace or"
            " stop brokers of Apache Kafka 3.9 and of older releases of gregor first."
        )
    if level < present and update.kind == UpgradeType.UPGRADE:
        return f"The present level is {present}: set the upgrade type to safe or unsafe downgrade."
    if level > present and update.kind != UpgradeType.UPGRADE:
        return f"The present level is {present}: an upgrade cannot be a downgrade."
    return None


def _serves(broker: LiveBroker, name: str, level: int) -> bool:
    """Level 0 means that the feature is not in force, which every broker serves."""
    if level == 0:
        return True
    registered = broker.registration.features.get(name)
    if not isinstance(registered, Mapping):
        return False
    lowest, highest = registered.get("min_version"), registered.get("max_version")
    return isinstance(lowest, int) and isinstance(highest, int) and lowest <= level <= highest


class FeatureAdmin:
    """Applies updates on the controller's broker, one at a time.

    A feature with `DowngradeWork` falls to 0 in phases, which the node has beside the level: brokers of Apache Kafka
    3.9 cannot start before all is done, and each other broker knows the phase, also one that starts meanwhile."""

    def __init__(
        self,
        store: MetadataStore,
        controller: Controller,
        features: FinalizedFeatures,
        works: Mapping[str, DowngradeWork] = NO_WORK,
        *,
        in_cluster: bool,
    ) -> None:
        """`works`: the work of downgrades to 0, by feature."""
        self._store = store
        self._controller = controller
        self._features = features
        self._in_cluster = in_cluster
        self._works = works

    async def validate(self, updates: Sequence[FeatureUpdate], limit: TimeLimit) -> None:
        """Raise the KafkaError with which `update` would refuse these updates."""
        cluster = present_context(self._controller)
        _, present = await self._present(limit)
        updated(present.levels if present.enabled else {}, updates, cluster.brokers)

    async def update(self, updates: Sequence[FeatureUpdate], limit: TimeLimit) -> None:
        """Return when the new levels are in force on this broker; the others follow. Raises KafkaError: those of
        `updated` and of the work, NOT_CONTROLLER, REQUEST_TIMED_OUT, FEATURE_UPDATE_FAILED."""
        while True:
            cluster = present_context(self._controller)
            node, present = await self._present(limit)
            levels = present.levels if present.enabled else {}
            after = updated(levels, updates, cluster.brokers)
            if after == levels and present.enabled and not present.downgrades:
                return
            falling = sorted(name for name in levels.keys() - after.keys() if name in self._works)
            kinds = {update.name: update.kind for update in updates}
            safe = [name for name in falling if kinds[name] is not UpgradeType.UNSAFE_DOWNGRADE]
            try:
                if falling:
                    await self._downgrade(levels, after, falling, safe, node, limit)
                else:
                    await self._write(after, NO_DOWNGRADES, node, limit)
            except (BadVersion, NoNode):
                continue
            self._report(levels, after)
            return

    async def _present(self, limit: TimeLimit) -> tuple[Stat, FeatureLevels]:
        node = await limit.within(partial(self._store.get, FEATURE))
        while node is None:
            await limit.within(partial(create_feature_node, self._store, {}))
            node = await limit.within(partial(self._store.get, FEATURE))
        try:
            return node[1], decode_features(node[0])
        except NodeFormatError as error:
            raise KafkaError(
                ErrorCode.FEATURE_UPDATE_FAILED, f"the finalised features cannot be decoded; correct the node: {error}"
            ) from None

    async def _downgrade(
        self,
        levels: Mapping[str, int],
        after: Mapping[str, int],
        falling: Sequence[str],
        safe: Sequence[str],
        node: Stat,
        limit: TimeLimit,
    ) -> None:
        """Lead the features through the phases and write the levels after them. Raises BadVersion, NoNode if another
        writer was before the first phase; a downgrade that fails later is undone."""
        phases: dict[str, DowngradePhase] = dict.fromkeys(safe, DowngradePhase.CLOSING)
        if not safe:
            phases = dict.fromkeys(falling, DowngradePhase.ENDING)
        node = await self._write(levels, phases, node, limit)
        try:
            for name in safe:
                with _named(name, levels[name]):
                    await self._works[name].check(node.version, limit)
            if safe:
                phases = dict.fromkeys(falling, DowngradePhase.ENDING)
                node = await self._write(levels, phases, node, limit)
            for name in falling:
                with _named(name, levels[name]):
                    await self._works[name].end(node.version, limit)
            await self._write(after, NO_DOWNGRADES, node, limit)
        except (BadVersion, NoNode):
            _, present = await self._present(TimeLimit())
            raise KafkaError(
                ErrorCode.FEATURE_UPDATE_FAILED,
                f"the features were changed meanwhile, to {_names(present.levels)}: this update ends here",
            ) from None
        except Exception:
            await self._undo(node)
            raise

    async def _undo(self, written: Stat) -> None:
        """Remove the phases that were written last, by whichever broker is the controller by now: it has undone those
        that it found when it was elected, and these may have come later."""
        try:
            limit = TimeLimit()
            await limit.within(partial(undo_downgrades, self._store, written.version))
            if self._controller.cluster is not None:
                # Those of a write that was given up, and may have been done.
                await limit.within(partial(undo_downgrades, self._store))
            await limit.within(self._features.refresh)
        except KafkaError as error:
            _log.error(
                "The downgrade of a feature failed, and its phase is still in %s: %s; repeat the downgrade, or restart"
                " this broker",
                FEATURE,
                error,
            )

    async def _write(
        self, levels: Mapping[str, int], downgrades: Mapping[str, DowngradePhase], node: Stat, limit: TimeLimit
    ) -> Stat:
        """Return the node that was written, which is in force on this broker. Raises BadVersion, NoNode."""
        stat = await limit.within(partial(self._set, encode_features(levels, downgrades), node))
        await limit.within(self._features.refresh)
        return stat

    async def _set(self, data: bytes, node: Stat) -> Stat:
        """Where the node was deleted and created again, its version rises above every epoch that clients have seen."""
        shown_epoch = self._features.highest_epoch
        stat = await self._store.set(FEATURE, data, node.version)
        while stat.version <= shown_epoch:
            stat = await self._store.set(FEATURE, data, stat.version)
        return stat

    def _report(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        for name in sorted(before.keys() | after.keys()):
            if before.get(name, 0) != after.get(name, 0):
                _log.info("Feature %s: level %d instead of %d", name, after.get(name, 0), before.get(name, 0))
        if self._in_cluster and after and not before:
            _log.warning(
                "A broker of Apache Kafka 3.9 or older cannot start in this cluster while a feature is finalised (%s):"
                " before one joins, downgrade with `gregor features downgrade %s`",
                _names(after),
                " ".join(f"--feature {name}=0" for name in sorted(after)),
            )


@contextmanager
def _named(name: str, level: int) -> Iterator[None]:
    """Name the downgrade in the error of its work."""
    try:
        yield
    except KafkaError as error:
        raise KafkaError(
            error.code, f"{name} stays at {level}, as its downgrade to 0 failed: {error.message}"
        ) from None
