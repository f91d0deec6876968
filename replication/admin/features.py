"""Requests that change the finalised feature levels (UpdateFeatures), as Apache Kafka 4.3's FeatureControlManager.

All updates of a request are made or none. Every live broker must serve the new level, by the features in its
registration: those of Apache Kafka 3.9 and of older releases of gregor register none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.controller_wait import Controller, present_context
from gregor.replication.controller.context import LiveBroker
from gregor.replication.store.features import (
    NEW_PROTOCOL,
    SUPPORTED,
    TRANSACTION_VERSION,
    FinalizedFeatures,
    create_feature_node,
)
from gregor.replication.store.metadata_store import BadVersion, MetadataStore, NoNode, Stat
from gregor.replication.store.nodes import (
    FEATURE,
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


class Downgrade(NamedTuple):
    """The level of a feature falls to `after`. `is_safe`: the client does not allow that anything is lost."""

    name: str
    level: int
    after: int
    is_safe: bool


DowngradeStep = Callable[[Downgrade, int], Awaitable[None]]
"""Receives also the time limit in milliseconds. Raises KafkaError."""


class DowngradeSteps(NamedTuple):
    """Work for features whose level falls: `before` it is written, when an error keeps the level, and `after` it."""

    before: Sequence[DowngradeStep] = ()
    after: Sequence[DowngradeStep] = ()


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


def next_step(levels: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the levels to write next on the way to `after`.

    transaction.version falls to 0 in two steps: at level 1 each broker ends the open transactions of the newer
    protocol, while the node still names the feature, so that no broker of Apache Kafka 3.9 starts before they have
    ended. Other features fall with the last step."""
    if levels.get(TRANSACTION_VERSION, 0) >= NEW_PROTOCOL and not after.get(TRANSACTION_VERSION):
        falling = {name: level for name, level in levels.items() if after.get(name, 0) < level}
        return {**after, **falling, TRANSACTION_VERSION: NEW_PROTOCOL - 1}
    return dict(after)


def _falling(levels: Mapping[str, int], after: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> list[Downgrade]:
    kinds = {update.name: update.kind for update in updates}
    return [
        Downgrade(name, levels[name], after.get(name, 0), kinds.get(name) is not UpgradeType.UNSAFE_DOWNGRADE)
        for name in sorted(levels)
        if after.get(name, 0) < levels[name]
    ]


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
    """Applies updates on the controller's broker."""

    def __init__(
        self,
        store: MetadataStore,
        controller: Controller,
        features: FinalizedFeatures,
        downgrade_steps: DowngradeSteps = DowngradeSteps(),  # noqa: B008 it is immutable
        *,
        in_cluster: bool,
    ) -> None:
        self._store = store
        self._controller = controller
        self._features = features
        self._in_cluster = in_cluster
        self._steps = downgrade_steps

    async def update(self, updates: Sequence[FeatureUpdate], timeout_ms: int, *, validate_only: bool = False) -> None:
        """Return when the new levels are in force on this broker; the others follow. Raises KafkaError: those of
        `updated`, NOT_CONTROLLER, REQUEST_TIMED_OUT, FEATURE_UPDATE_FAILED."""
        limit = TimeLimit(timeout_ms)
        written: Mapping[str, int] | None = None
        while True:
            cluster = present_context(self._controller)
            node, present = await self._present(limit)
            levels = present.levels if present.enabled else {}
            if written is not None and levels != written:
                raise KafkaError(
                    ErrorCode.FEATURE_UPDATE_FAILED,
                    f"the features were changed meanwhile, to {_names(levels)}: this update ends here",
                )
            after = updated(levels, updates, cluster.brokers)
            if validate_only or (after == levels and present.enabled):
                return
            step = next_step(levels, after)
            falling = _falling(levels, after, updates) if step == after else []
            await self._prepare(falling, limit)
            try:
                await limit.within(partial(self._write, step, node))
            except (BadVersion, NoNode):
                continue
            written = step
            await limit.within(self._features.refresh)
            self._report(levels, step)
            await self._complete(falling, limit)

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

    async def _prepare(self, falling: Sequence[Downgrade], limit: TimeLimit) -> None:
        for downgrade in falling:
            for prepare in self._steps.before:
                try:
                    await prepare(downgrade, max(0, limit.left_ms))
                except KafkaError as error:
                    name, level, after = downgrade[:3]
                    raise KafkaError(
                        error.code, f"{name} stays at {level}, as its downgrade to {after} failed: {error.message}"
                    ) from None

    async def _complete(self, fallen: Sequence[Downgrade], limit: TimeLimit) -> None:
        for downgrade in fallen:
            for complete in self._steps.after:
                try:
                    await complete(downgrade, max(0, limit.left_ms))
                except KafkaError as error:
                    raise KafkaError(
                        error.code, f"{downgrade.name} is at {downgrade.after}, but {error.message}"
                    ) from None

    async def _write(self, levels: Mapping[str, int], node: Stat) -> None:
        """Raises BadVersion, NoNode. Where the node was deleted and created again, its version rises above every epoch
        that clients have seen."""
        data = encode_features(levels)
        shown_epoch = self._features.highest_epoch
        stat = await self._store.set(FEATURE, data, node.version)
        while stat.version <= shown_epoch:
            stat = await self._store.set(FEATURE, data, stat.version)

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
