"""Requests about topics: creation, deletion, more partitions. Each writes nodes, and waits until the controller of this
process has acted on them: it is handled by the controller's broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.topic import LogConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid, random_uuid
from gregor.protocol.topic_names import CLUSTER_METADATA_TOPIC, colliding, folded, may_collide, name_problem
from gregor.protocol.turns import Gate, Turns, run_all
from gregor.replication.admin.assignment import check_manual, spread
from gregor.replication.admin.configs import ConfigAdmin
from gregor.replication.admin.controller_wait import all_of, present_context, wait_until
from gregor.replication.admin.replicas import Controller, ReplicaAdmin
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.reassignment import is_moving
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.store import nodes
from gregor.replication.store.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from gregor.replication.store.time_limit import DEFAULT_TIMEOUT_MS, TimeLimit
from gregor.replication.store.topic_configs import TopicConfigs

TOPICS_AT_ONCE = 64
"""The topics of a request whose nodes are written at the same time: a commit to the store waits for a disk, and one is
enough for those that wait together."""


class NewTopic(NamedTuple):
    """-1 stands for the broker's default; `assignments` (partition -> replicas) excludes both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


Count = Callable[[int], None]
"""Counts partitions that are about to be created or deleted. Raises KafkaError where the client has exceeded a quota:
they are not."""


class CreatedTopic(NamedTuple):
    """`topic_id` is all zeros if it was only validated."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class Admin:
    """Methods raise KafkaError; those for several topics at once return one for each that failed, in order.

    With a timeout of 0 or less the response is REQUEST_TIMED_OUT for everything that was written, and the change is
    carried out all the same, as with Kafka. A change that could not be written in time has that error, too: see
    `time_limit`.
    """

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        broker_id: int,
        controller: Controller,
        image: MetadataImage,
        configs: TopicConfigs,
        gate: Gate,
        *,
        is_reserved: Callable[[str], bool] = lambda name: False,
        check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None,
    ) -> None:
        """`is_reserved`: whether a topic exists that the metadata does not know. `check_listeners`: see ConfigAdmin."""
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._controller = controller
        self._image = image
        self._gate = gate
        self.settings = ConfigAdmin(store, config, broker_id, configs, gate, check_listeners)
        self.replicas = ReplicaAdmin(controller, image, gate)
        self._is_reserved = is_reserved
        # A request may be completed by the metadata of another controller.
        image.on_update.append(controller.check_conditions)

    @property
    def is_controller(self) -> bool:
        return self._controller.cluster is not None

    @staticmethod
    def is_legal_topic_name(name: str) -> bool:
        return name_problem(name) is None

    # -- create ----------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> CreatedTopic:
        """Create one topic and wait until its leaders are known here."""
        topic = NewTopic(name, partitions, replication_factor, configs=configs or {})
        result = (await self.create_topics([topic], timeout_ms))[0]
        if isinstance(result, KafkaError):
            raise result
        return result

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        validate_only: bool = False,
        count: Count | None = None,
    ) -> list[CreatedTopic | KafkaError]:
        """Errors: those of `count`, TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG,
        INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        present_context(self._controller)
        limit = TimeLimit(timeout_ms)
        results: list[CreatedTopic | KafkaError] = []
        create = partial(self._create, validate_only=validate_only, turns=self._gate.turns(), count=count)
        for group in _without_collisions(topics):
            results += await limit.within_each(group, create)
        created = [result for result in results if isinstance(result, CreatedTopic)]
        if validate_only or not created:
            return results
        await wait_until(
            self._controller, all_of(created, lambda topic: self._is_led(topic.name, topic.partitions)), limit
        )
        return [
            result
            if isinstance(result, KafkaError) or (timeout_ms > 0 and self._is_led(result.name, result.partitions))
            else KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{result.name} is being created")
            for result in results
        ]

    async def _create(self, topic: NewTopic, *, validate_only: bool, turns: Turns, count: Count | None) -> CreatedTopic:
        await turns.next()
        name = topic.name
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is not for clients to create")
        if await self._store.exists(nodes.topic_path(name)) is not None or self._is_reserved(name):
            raise self._exists(name)
        other = None
        if may_collide(name):
            other = colliding(name, await self._store.children(nodes.TOPICS))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} and the existing {other} differ only in '.' and '_'"
            )
        assignments = await self._assign(topic, turns)
        configs = self._new_configs(topic.configs)
        factor = len(assignments[0])
        if validate_only:
            return CreatedTopic(name, bytes(16), len(assignments), factor, configs)
        if count is not None:
            count(len(assignments))
        topic_id = random_uuid()
        replicas = nodes.replica_assignments(assignments)
        await turns.next()
        data = nodes.encode_topic(nodes.TopicAssignment(topic_id, replicas))
        await turns.next()
        # The settings first: they must be there as soon as the topic is.
        config_path = nodes.config_path("topics", name)
        while True:
            config = nodes.encode_config(configs)
            left_over = await self._store.exists(config_path) is not None
            write: Operation = Set(config_path, config) if left_over else Create(config_path, config)
            try:
                await self._store.multi([write, Create(nodes.topic_path(name), data)])
                break
            except NodeExists as error:
                if error.path != config_path:
                    raise self._exists(name) from None
            except NoNode:
                continue
        return CreatedTopic(name, topic_id, len(assignments), factor, configs)

    def _exists(self, name: str) -> KafkaError:
        cluster = self._controller.cluster
        known = None if cluster is None else cluster.topics.get(name)
        leaving = known is not None and (known.deleting or known.deletion_queued)
        what = f"topic {name} is still being deleted" if leaving else f"topic {name} already exists"
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, what)

    async def _assign(self, topic: NewTopic, turns: Turns) -> dict[int, tuple[int, ...]]:
        brokers = sorted(self._image.brokers)
        if topic.assignments:
            if topic.partitions != -1 or topic.replication_factor != -1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "either numbers or an assignment, not both")
            away = {id_ for replicas in topic.assignments.values() for id_ in replicas}.difference(brokers)
            return check_manual(topic.assignments, [*brokers, *await self._with_replicas(away, turns)])
        partitions, factor = topic.partitions, topic.replication_factor
        return spread(
            brokers,
            self._config["num.partitions"] if partitions == -1 else partitions,
            self._config["default.replication.factor"] if factor == -1 else factor,
            racks=self._racks(),
        )

    async def _with_replicas(self, broker_ids: Collection[int], turns: Turns) -> set[int]:
        """Return those of the brokers that have replicas: these are brokers of the cluster that are away, not typing
        errors."""
        found: set[int] = set()
        for topic in list(present_context(self._controller).topics.values()) if broker_ids else ():
            await turns.next()
            for partition in topic.partitions.values():
                found.update(partition.assignment.replicas)
            found.intersection_update(broker_ids)
            if len(found) == len(broker_ids):
                break
        return found

    def _racks(self) -> dict[int, str | None]:
        return {id_: broker.rack for id_, broker in self._image.brokers.items()}

    def _new_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        given: dict[str, str] = {}
        for key, text in configs.items():
            if text is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} needs a value")
            given[key] = text
        self._check_topic_config(given)
        return given

    def _check_topic_config(self, configs: Mapping[str, str]) -> None:
        try:
            LogConfig.defaults(self._config).with_overrides(configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    # -- delete ----------------------------------------------------------------------------------------------------

    async def delete_topics(
        self, names: Sequence[str], timeout_ms: int = DEFAULT_TIMEOUT_MS, *, count: Count | None = None
    ) -> list[KafkaError | None]:
        """Delete topics with their records; None for each that is gone when this returns. Brokers that are away delete
        their replicas when they are back, and until then the name is not free.

        Errors: those of `count`, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT."""
        present_context(self._controller)
        limit = TimeLimit(timeout_ms)
        results: list[KafkaError | None] = []
        queue = partial(self._queue_for_deletion, turns=self._gate.turns(), count=count)
        for first in range(0, len(names), TOPICS_AT_ONCE):
            results += await limit.within_each(names[first : first + TOPICS_AT_ONCE], queue)
        queued = [name for name, error in zip(names, results, strict=True) if error is None]
        if not queued:
            return results
        await wait_until(self._controller, all_of(queued, self._is_gone), limit)
        return [
            error
            if error is not None or (timeout_ms > 0 and self._is_gone(name))
            else KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} is being deleted")
            for name, error in zip(names, results, strict=True)
        ]

    async def _queue_for_deletion(self, name: str, *, turns: Turns, count: Count | None) -> KafkaError | None:
        await turns.next()
        if not self._config["delete.topic.enable"]:
            return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        # Not only for the response: an illegal topic name may not be a legal node name either.
        if name_problem(name) is not None or await self._store.exists(nodes.topic_path(name)) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if count is not None:
            topic = self._image.topic(name)
            count(0 if topic is None else len(topic.partitions))
        # If the node exists, the deletion was requested before: this request waits for the same one.
        with suppress(NodeExists):
            await self._store.create(nodes.delete_topic_path(name))
        return None

    # -- partitions ------------------------------------------------------------------------------------------------

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        limit: TimeLimit | None = None,
        *,
        validate_only: bool = False,
        count_changes: Count | None = None,
    ) -> None:
        """Widen a topic to `count` partitions; `assignments` holds the replicas of each new one. `limit`: that of the
        request, which may be about more topics.

        Raises KafkaError: that of `count_changes`, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR (too few brokers), POLICY_VIOLATION,
        REASSIGNMENT_IN_PROGRESS, REQUEST_TIMED_OUT."""
        cluster = present_context(self._controller)
        limit = limit or TimeLimit()
        await limit.within(partial(self._write_wider, cluster, name, count, assignments, validate_only, count_changes))
        if not validate_only and not await wait_until(self._controller, lambda: self._is_led(name, count), limit):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} is being widened")

    async def _write_wider(
        self,
        cluster: Cluster,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        validate_only: bool,
        count_changes: Count | None,
    ) -> None:
        while True:
            node = None if name_problem(name) is not None else await self._store.get(nodes.topic_path(name))
            known = cluster.topics.get(name)
            if node is None or (known is not None and known.deleting):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            topic = run_all(nodes.decode_topic(name, node[0]))
            if any(map(is_moving, topic.partitions.values())):
                raise KafkaError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS,
                    f"A partition reassignment is in progress for the topic '{name}'.",
                )
            added = self._widen(topic, count, assignments)
            if validate_only:
                return
            if count_changes is not None:
                count_changes(len(added))
                count_changes = None  # not again, if the node has changed in the meantime
            partitions = topic.partitions | nodes.replica_assignments(added)
            data = nodes.encode_topic(nodes.TopicAssignment(topic.topic_id, partitions))
            try:
                await self._store.set(nodes.topic_path(name), data, node[1].version)
                return
            except (BadVersion, NoNode):
                continue

    def _widen(
        self, topic: nodes.TopicAssignment, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> dict[int, tuple[int, ...]]:
        present = len(topic.partitions)
        if count <= present:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the topic has {present} partitions, {count} is not more")
        brokers = sorted(self._image.brokers)
        first = topic.partitions[min(topic.partitions)].replicas if topic.partitions else (brokers[0],)
        if assignments is None:
            # Continue where the first partition began, as if all had been made at once.
            start = next((index for index, id_ in enumerate(brokers) if id_ >= first[0]), 0)
            return spread(
                brokers,
                count - present,
                len(first),
                racks=self._racks(),
                start_partition=present,
                start_index=start,
            )
        if len(assignments) != count - present:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - present} new partitions, but {len(assignments)} assignments",
            )
        checked = check_manual(dict(enumerate(assignments, present)), brokers, start_partition=present)
        if len(checked[present]) != len(first):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the topic has replication factor {len(first)}")
        return checked

    def _is_led(self, name: str, partitions: int) -> bool:
        topic = self._image.topic(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(partition.leader >= 0 for partition in topic.partitions.values())
        )

    def _is_gone(self, name: str) -> bool:
        """Return whether the topic is gone from the metadata, with all replicas that can be deleted now."""
        if self._image.topic(name) is not None:
            return False
        cluster = self._controller.cluster
        topic = None if cluster is None else cluster.topics.get(name)
        if cluster is None or topic is None:
            return True
        # With no replica left its nodes are about to be removed.
        return bool(topic.undeleted) and not any(
            broker_id in cluster.brokers and (name, partition, broker_id) not in cluster.failed
            for partition, broker_id in topic.undeleted or ()
        )


def _without_collisions(topics: Iterable[NewTopic]) -> Iterator[list[NewTopic]]:
    """Divide topics, in their order, into groups to create at once. One whose name collides with an earlier one is in a
    later group: it finds the other in the store."""
    group: list[NewTopic] = []
    names: set[str] = set()
    for topic in topics:
        name = folded(topic.name)
        if len(group) == TOPICS_AT_ONCE or name in names:
            yield group
            group, names = [], set()
        group.append(topic)
        names.add(name)
    if group:
        yield group
