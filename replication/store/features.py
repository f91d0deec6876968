"""The finalised feature levels of the cluster (KIP-584), in the node /feature.

A level is finalised when every broker may rely on it: each member knows it, and a broker that does not know it cannot
join. Without the node, or without an entry in it, a feature has level 0. The epoch is the data version of the node, as
in Apache Kafka 3.9.1; clients ignore levels of an earlier epoch than they have seen.

A downgrade to level 0 has phases before it is written (`DowngradePhase`), which the node has beside the level. The
controller that leads it removes them if it fails, also when its term has ended; the next controller does so when it is
elected (`undo_downgrades`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gregor.replication.store.metadata_store import (
    BadVersion,
    MetadataStore,
    NodeExists,
    NoNode,
    Stat,
    StoreError,
    WatchEvent,
)
from gregor.replication.store.nodes import (
    FEATURE,
    NO_DOWNGRADES,
    DowngradePhase,
    NodeFormatError,
    decode_features,
    encode_features,
)

TRANSACTION_VERSION = "transaction.version"
NEW_PROTOCOL = 2
"""Level of transaction.version from which clients use the protocol of KIP-890, part 2."""
GROUP_VERSION = "group.version"
CONSUMER_PROTOCOL = 1
"""Level of group.version from which clients may use the consumer group protocol of KIP-848."""
SUPPORTED: Mapping[str, tuple[int, int]] = {GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}
"""Lowest and highest level that this release serves, by feature."""
LEVELS_OF_NEW_STORE: Mapping[str, int] = {GROUP_VERSION: CONSUMER_PROTOCOL, TRANSACTION_VERSION: NEW_PROTOCOL}
"""Finalised in the store of a single broker when it is created: there is no other broker that might not know them."""
REGISTERED: Mapping[str, Mapping[str, int]] = {
    name: {"min_version": max(lowest, 1), "max_version": highest} for name, (lowest, highest) in SUPPORTED.items()
}
"""SUPPORTED in the form of a broker's registration. Releases of Apache Kafka before 3.9 refuse a lowest level of 0,
which means that the feature is not in force, and which every broker serves."""
NO_EPOCH = -1

_log = logging.getLogger(__name__)


class UnsupportedFeature(StoreError):
    """A feature is finalised at a level that this release does not serve."""


class Finalized(NamedTuple):
    """`epoch` is NO_EPOCH while no level is known."""

    epoch: int
    levels: Mapping[str, int]


_UNKNOWN = Finalized(NO_EPOCH, {})


def unsupported(levels: Mapping[str, int], supported: Mapping[str, tuple[int, int]] = SUPPORTED) -> list[str]:
    """Return the features, as "name=level", whose level is not among those supported."""
    return [
        f"{name}={level}"
        for name, level in sorted(levels.items())
        if level and not supported.get(name, (0, 0))[0] <= level <= supported.get(name, (0, 0))[1]
    ]


class FinalizedFeatures:
    """The levels in force, as this broker has them. `spawn` runs a coroutine on the loop."""

    def __init__(self, store: MetadataStore, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self.finalized = _UNKNOWN
        """Replaced by another object with each change."""
        self.downgrades: Mapping[str, DowngradePhase] = NO_DOWNGRADES
        """The downgrades to level 0 that are under way. A feature in the phase ENDING has no level in force."""
        self.on_changed: list[Callable[[], None]] = []
        """Called when other levels are in force."""
        self._store = store
        self._spawn = spawn
        self._levels_of_node: Mapping[str, int] = {}
        self._stat: Stat | None = None
        self._highest_epoch = NO_EPOCH
        self._watched = False
        store.on_session_expired.append(self._session_expired)

    async def start(self) -> None:
        """Read the levels, and follow their changes. Raises UnsupportedFeature, with which the broker must not join the
        cluster; StoreError where the node cannot be read."""
        try:
            await self._read()
        except NodeFormatError as error:
            raise StoreError(FEATURE, f"the finalised features cannot be decoded: {error}") from None
        unserved = unsupported(self._levels_of_node)
        if unserved:
            raise UnsupportedFeature(
                FEATURE,
                f"the cluster has finalised {', '.join(unserved)}, which this release does not serve; downgrade the"
                " feature, or start a release that serves it",
            )

    def level(self, name: str) -> int:
        """Return the level in force, which this release serves; 0 for a feature that is not finalised."""
        return min(self.finalized.levels.get(name, 0), SUPPORTED.get(name, (0, 0))[1])

    def transaction_version(self) -> int:
        """Return the level of transaction.version: from 2 on clients may use the protocol of KIP-890, part 2."""
        return self.level(TRANSACTION_VERSION)

    def group_version(self) -> int:
        """Return the level of group.version: from 1 on clients may use the consumer group protocol of KIP-848."""
        return self.level(GROUP_VERSION)

    def admits_consumer_members(self) -> bool:
        """Return whether members of the consumer protocol may join a group."""
        return self.group_version() >= CONSUMER_PROTOCOL and GROUP_VERSION not in self.downgrades

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that this broker has shown to clients."""
        return self._highest_epoch

    async def refresh(self) -> None:
        """Read the levels again, after a write of this broker. A value that cannot be decoded changes nothing."""
        try:
            await self._read()
        except NodeFormatError as error:
            _log.error(
                "The finalised features cannot be decoded, and those in force remain: %s; correct the value of %s",
                error,
                FEATURE,
            )

    async def _read(self) -> None:
        watch, self._watched = (None if self._watched else self._changed), True
        try:
            # This sets the watch also where there is no node.
            await self._store.exists(FEATURE, watch)
        except BaseException:
            self._watched = self._watched and watch is None
            raise
        node = await self._store.get(FEATURE)
        if node is None:
            self._put_in_force(None, _UNKNOWN, NO_DOWNGRADES, {})
            return
        data, stat = node
        enabled, of_node, downgrades = decode_features(data)
        if not enabled:
            of_node, downgrades = {}, NO_DOWNGRADES
        levels = {name: level for name, level in of_node.items() if downgrades.get(name) is not DowngradePhase.ENDING}
        finalized = Finalized(self._epoch_of(stat, levels), levels) if enabled else _UNKNOWN
        self._put_in_force(stat, finalized, downgrades, of_node)

    def _epoch_of(self, stat: Stat, levels: Mapping[str, int]) -> int:
        """Return the node's version. Where the node was deleted and created again its version begins at 0, but the
        epoch must not fall: it stays, and grows with other levels."""
        shown = self.finalized
        if stat.version > self._highest_epoch:
            return stat.version
        if shown.epoch == self._highest_epoch and shown.levels == levels:
            return self._highest_epoch
        return self._highest_epoch + 1

    def _put_in_force(
        self,
        stat: Stat | None,
        finalized: Finalized,
        downgrades: Mapping[str, DowngradePhase],
        of_node: Mapping[str, int],
    ) -> None:
        before = self.finalized
        if stat is not None and self._stat is not None and _age(stat) < _age(self._stat):
            return  # of two reads under way the later one has returned already
        self._stat, self.downgrades, self._levels_of_node = stat, downgrades, of_node
        if finalized == before:
            return
        self.finalized = finalized
        self._highest_epoch = max(self._highest_epoch, finalized.epoch)
        if finalized.levels == before.levels:
            return
        names = ", ".join(f"{name}={level}" for name, level in sorted(finalized.levels.items())) or "none"
        _log.info("Finalised features in force: %s, epoch %d", names, finalized.epoch)
        if unserved := unsupported(of_node):
            _log.error(
                "The cluster has finalised %s, which this release does not serve: this broker serves what it can, and"
                " will not start again until the feature is downgraded",
                ", ".join(unserved),
            )
        for listener in self.on_changed:
            listener()

    def _changed(self, _event: WatchEvent) -> None:
        self._watched = False
        self._spawn(self.refresh())

    def _session_expired(self) -> None:
        self._watched = False
        self._spawn(self.refresh())


def _age(stat: Stat) -> tuple[int, int]:
    return stat.czxid, stat.version


async def create_feature_node(store: MetadataStore, levels: Mapping[str, int]) -> None:
    """Create the node with these levels, unless it exists."""
    with suppress(NodeExists):
        if await store.exists(FEATURE) is None:
            await store.create(FEATURE, encode_features(levels))


async def undo_downgrades(store: MetadataStore, version: int | None = None) -> None:
    """Remove the phases of downgrades from the node, whose levels remain: this broker does not lead them. With a
    version only those that were written with it. A value that cannot be decoded remains, too."""
    while (node := await store.get(FEATURE)) is not None:
        data, stat = node
        if version not in (None, stat.version):
            return
        try:
            present = decode_features(data)
        except NodeFormatError:
            return
        if not present.downgrades:
            return
        try:
            await store.set(FEATURE, encode_features(present.levels), stat.version)
        except (BadVersion, NoNode):
            continue
        _log.warning(
            "The downgrade of %s has ended before its level was written: the levels remain; repeat the downgrade",
            ", ".join(sorted(present.downgrades)),
        )
