"""The controller moves leadership back to preferred replicas (auto.leader.rebalance.enable).

At intervals it computes for each broker the share of its preferred partitions that other brokers lead. Where the share
exceeds leader.imbalance.per.broker.percentage, it moves all of them back that can be (Kafka's
checkAndTriggerAutoLeaderRebalance).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any, Protocol

from gregor.protocol.topic_partition import TopicPartition
from gregor.protocol.turns import ITEMS_PER_STEP, Gate, Steps
from gregor.replication.controller.context import Cluster
from gregor.replication.controller.election import elect_preferred

FIRST_CHECK_S = 5.0


class Controller(Protocol):
    """The part of controller.loop.ControllerLoop that elects leaders."""

    cluster: Cluster | None

    async def elect(self, keys: Collection[TopicPartition], unclean: bool) -> Any: ...


def imbalanced_partitions(cluster: Cluster, percentage: int) -> Steps[set[TopicPartition]]:
    """Return the partitions to move back: those that another replica than the preferred one leads, if that could lead,
    of brokers with a share of more than `percentage` of such partitions."""
    wanted: Counter[int] = Counter()
    missing: dict[int, list[TopicPartition]] = {}
    count = 0
    for key, topic, partition in cluster.partitions():
        count += 1
        if not count % ITEMS_PER_STEP:
            yield None
        if topic.deleting or topic.deletion_queued:
            continue
        preferred = partition.assignment.replicas[0]
        wanted[preferred] += 1
        if partition.state is not None and partition.state.leader != preferred:
            missing.setdefault(preferred, []).append(key)
    found = set()
    for preferred, keys in missing.items():
        if len(keys) * 100 <= percentage * wanted[preferred]:
            continue
        for key in keys:
            count += 1
            if not count % ITEMS_PER_STEP:
                yield None
            partition = cluster.topics[key[0]].partitions[key[1]]
            assert partition.state is not None
            electable = cluster.electable(key, partition)
            if elect_preferred(partition.assignment.replicas, partition.state, electable, cluster.epoch) is not None:
                found.add(key)
    return found


class AutoLeaderRebalance:
    """`run()` lasts until the broker stops; it checks only while this broker is the controller."""

    def __init__(self, controller: Controller, percentage: int, interval_s: float, gate: Gate) -> None:
        self._controller = controller
        self._percentage = percentage
        self._interval_s = interval_s
        self._gate = gate

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        checked_s = 0.0
        epoch = None
        while True:
            await asyncio.sleep(min(FIRST_CHECK_S, self._interval_s))
            cluster = self._controller.cluster
            if cluster is None:
                epoch = None
            elif cluster.epoch != epoch:
                # Elected since the last check: other brokers may still be starting.
                epoch, checked_s = cluster.epoch, loop.time() - self._interval_s + FIRST_CHECK_S
            elif loop.time() - checked_s >= self._interval_s:
                checked_s = loop.time()
                await self.check()

    async def check(self) -> None:
        cluster = self._controller.cluster
        if cluster is None or len(cluster.brokers) < 2:
            return
        keys = await self._gate.run(imbalanced_partitions(cluster, self._percentage))
        if keys:
            await self._controller.elect(keys, False)
