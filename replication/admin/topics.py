"""What the admin requests do: topics made, deleted, widened, all by writing nodes; settings: `config_admin`.

To be used on the controller's broker: it waits for the controller of this process to act on what was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from gregor.config.addresses import Addresses
from gregor.config.broker import BrokerConfig
from gregor.config.definitions import ConfigError
from gregor.config.topic import LogConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.ids import Uuid, random_uuid
from gregor.protocol.topic_names import CLUSTER_METADATA_TOPIC, colliding, may_collide, name_problem
from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import Gate, Turns, run_all
from gregor.replication.admin.assignment import check_manual, spread
from gregor.replication.admin.configs import ConfigAdmin
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

NOTIFIED_WITHIN_MS = 1000
"""So long, at most, an answer waits for the other brokers to know what it tells."""

ItemT = TypeVar("ItemT")


class Controller(Protocol):
    """What is needed of controller.loop.ControllerLoop."""

    cluster: Cluster | None

    def check_conditions(self) -> None: ...

    async def wait_until(self, predicate: Callable[[], bool], timeout_ms: int | None = None) -> bool: ...

    async def until_notified(self, timeout_s: float) -> None: ...

    async def elect(
        self, keys: Collection[TopicPartition], unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]: ...

    async def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaError | None]: ...

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, nodes.ReplicaAssignment]: ...


class NewTopic(NamedTuple):
    """-1 stands for the broker's default; `assignments` (partition -> replicas) excludes both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """`topic_id` is all zeros if it was only validated."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def _all_of(items: Iterable[ItemT], holds: Callable[[ItemT], bool]) -> Callable[[], bool]:
    """Whether something came true of each item: to be asked often, so of one of which it did it does not ask again."""
    left = deque(items)

    def all_hold() -> bool:
        while left and holds(left[0]):
            left.popleft()
        return not left

    return all_hold


class Admin:
    """Methods raise KafkaError; those for several things at once return one for each that failed, in order.

    A timeout of 0 or less does not wait: what was written is answered with REQUEST_TIMED_OUT and happens all the same,
    as with Kafka. What could not be written in time has that error, too: see `time_limit`.
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
        check_addresses: Callable[[Addresses], None] = lambda addresses: None,
    ) -> None:
        """`is_reserved`: whether a topic exists that the metadata does not know. `check_addresses`: see ConfigAdmin."""
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._controller = controller
        self._image = image
        self._configs = configs
        self._gate = gate
        self.settings = ConfigAdmin(store, config, broker_id, configs, gate, check_addresses)
        self._is_reserved = is_reserved
        # Who waits may learn from another controller how it ended.
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
        self, topics: Sequence[NewTopic], timeout_ms: int = DEFAULT_TIMEOUT_MS, *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT."""
        self._check_controller()
        limit = TimeLimit(timeout_ms)
        results: list[CreatedTopic | KafkaError] = []
        turns = self._gate.turns()
        for topic in topics:
            await turns.next()
            try:
                results.append(await limit.within(partial(self._create, topic, validate_only, turns)))
            except KafkaError as error:
                results.append(error)
        created = [result for result in results if isinstance(result, CreatedTopic)]
        if validate_only or not created:
            return results
        await self._wait(_all_of(created, lambda topic: self._is_led(topic.name, topic.partitions)), limit)
        return [
            result
            if isinstance(result, KafkaError) or (timeout_ms > 0 and self._is_led(result.name, result.partitions))
            else KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{result.name} is being created")
            for result in results
        ]

    async def _create(self, topic: NewTopic, validate_only: bool, turns: Turns) -> CreatedTopic:
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
        topic_id = random_uuid()
        replicas = nodes.replica_assignments(assignments)
        await turns.next()
        data = nodes.encode_topic(nodes.TopicAssignment(topic_id, replicas))
        await turns.next()
        # The settings first: whoever sees the topic must find them.
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
        self._configs.forget(name)
        return CreatedTopic(name, topic_id, len(assignments), factor, configs)

    def _exists(self, name: str) -> KafkaError:
        cluster = self._controller.cluster
        known = None if cluster is None else cluster.topics.get(name)
        doomed = known is not None and (known.deleting or known.deletion_queued)
        what = f"topic {name} is still being deleted" if doomed else f"topic {name} already exists"
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
        """Those of them that have replicas: brokers of this cluster that are away, and not slips of the pen."""
        found: set[int] = set()
        for topic in list(self._check_controller().topics.values()) if broker_ids else ():
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
        self, names: Sequence[str], timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> list[KafkaError | None]:
        """Delete topics with their records; None for each that is gone when this returns, but for what lies with
        brokers that are away: they delete it when they are back, and until then the name is not free.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT."""
        self._check_controller()
        limit = TimeLimit(timeout_ms)
        results: list[KafkaError | None] = []
        turns = self._gate.turns()
        for name in names:
            await turns.next()
            try:
                results.append(await limit.within(partial(self._queue_for_deletion, name)))
            except KafkaError as error:
                results.append(error)
        doomed = [name for name, error in zip(names, results, strict=True) if error is None]
        if not doomed:
            return results
        await self._wait(_all_of(doomed, self._is_gone), limit)
        return [
            error
            if error is not None or (timeout_ms > 0 and self._is_gone(name))
            else KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} is being deleted")
            for name, error in zip(names, results, strict=True)
        ]

    async def _queue_for_deletion(self, name: str) -> KafkaError | None:
        if not self._config["delete.topic.enable"]:
            return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        # Not only for the answer: a name that is no topic's may be no node's either.
        if name_problem(name) is not None or await self._store.exists(nodes.topic_path(name)) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        # If it exists, somebody asked before: wait with them.
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
    ) -> None:
        """Widen a topic to `count` partitions; `assignments` holds the replicas of each new one. `limit`: that of the
        request, which may be about more topics.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR (too few brokers), POLICY_VIOLATION, REASSIGNMENT_IN_PROGRESS, REQUEST_TIMED_OUT."""
        cluster = self._check_controller()
        limit = limit or TimeLimit()
        await limit.within(partial(self._write_wider, cluster, name, count, assignments, validate_only))
        if not validate_only and not await self._wait(lambda: self._is_led(name, count), limit):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name} is being widened")

    async def _write_wider(
        self,
        cluster: Cluster,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        validate_only: bool,
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
            # Go on where the first partition began, as if all had been made at once.
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

    # -- replicas --------------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, keys: Collection[TopicPartition], timeout_ms: int, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Let the preferred replica lead each partition, or with `unclean`, where nobody leads, any that is alive; None
        for each whose new leader this broker's metadata names when this returns.

        Errors: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, REQUEST_TIMED_OUT. Raises NOT_CONTROLLER."""
        self._check_controller()
        limit = TimeLimit(timeout_ms)
        try:
            found = await limit.within(partial(self._controller.elect, keys, unclean))
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        turns = self._gate.turns()
        results: dict[TopicPartition, KafkaError | None] = {}
        elected: dict[TopicPartition, int] = {}
        for key, result in found.items():
            await turns.next()
            results[key] = result if isinstance(result, KafkaError) else None
            if not isinstance(result, KafkaError):
                elected[key] = result

        def is_notified(key: TopicPartition) -> bool:
            state = self._image.partition(*key)
            return state is not None and state.leader == elected[key]

        if elected:
            await self._wait(_all_of(elected, is_notified), limit)
        for key in elected:
            await turns.next()
            if not is_notified(key):
                results[key] = KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the leader was elected, but is not known here yet"
                )
        return results

    async def reassignments(
        self, wanted: Collection[TopicPartition] | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> dict[TopicPartition, nodes.ReplicaAssignment]:
        """Of these partitions, or of all, those whose replicas are on their way. Raises KafkaError NOT_CONTROLLER,
        REQUEST_TIMED_OUT."""
        return await TimeLimit(timeout_ms).within(partial(self._controller.reassignments, wanted))

    async def reassign(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        keep_factor: bool = False,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send partitions to other brokers, or with None back to where they came from; for each why not, or None: it is
        on its way, or there. `keep_factor`: to as many brokers as it has replicas only. Raises NOT_CONTROLLER, and
        REQUEST_TIMED_OUT: it may have begun, or begin yet.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR (with `keep_factor`), NOT_CONTROLLER."""
        self._check_controller()
        work = partial(self._controller.reassign, targets, keep_factor=keep_factor)
        return await TimeLimit(timeout_ms).within(work)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _check_controller(self) -> Cluster:
        cluster = self._controller.cluster
        if cluster is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return cluster

    async def _wait(self, predicate: Callable[[], bool], limit: TimeLimit) -> bool:
        """Until it holds here, and until the other brokers know, if they answer soon: a client asks any of them next.
        (Beyond Apache Kafka, with which the next request may find nothing of what this one made.)"""
        left_ms = limit.left_ms
        holds = left_ms > 0 and await self._controller.wait_until(predicate, left_ms)
        if holds:
            await self._controller.until_notified(min(limit.left_ms, NOTIFIED_WITHIN_MS) / 1000)
        return holds

    def _is_led(self, name: str, partitions: int) -> bool:
        topic = self._image.topic(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(partition.leader >= 0 for partition in topic.partitions.values())
        )

    def _is_gone(self, name: str) -> bool:
        """From the metadata, and with all replicas that can be deleted now."""
        if self._image.topic(name) is not None:
            return False
        cluster = self._controller.cluster
        topic = None if cluster is None else cluster.topics.get(name)
        if cluster is None or topic is None:
            return True
        # None left: its nodes are about to go.
        return bool(topic.undeleted) and not any(
            broker_id in cluster.brokers and (name, partition, broker_id) not in cluster.failed
            for partition, broker_id in topic.undeleted or ()
        )
