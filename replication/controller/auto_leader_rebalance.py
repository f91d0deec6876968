"""The controller gives leadership back to preferred replicas by and by (auto.leader.rebalance.enable).

Now and then it looks which share of the partitions that a broker is to lead is led by others, and where that is more
than leader.imbalance.per.broker.percentage, gives back all that can go (Kafka's checkAndTriggerAutoLeaderRebalance).
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
    """What is needed of controller.loop.ControllerLoop."""

    cluster: Cluster | None

    async def elect(self, keys: Collection[TopicPartition], unclean: bool) -> Any: ...


def misled(cluster: Cluster, percentage: int) -> Steps[set[TopicPartition]]:
    """Partitions to give back: those led by another than the first replica, if that
    one could lead, of brokers of which more than `percentage` of theirs are."""
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
    """`run()` for as long as the broker runs: it looks only while this broker is the controller."""

    def __init__(self, controller: Controller, percentage: int, interval_s: float, gate: Gate) -> None:
        self._controller = controller
        self._percentage = percentage
        self._interval_s = interval_s
        self._gate = gate

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        looked_s = 0.0
        epoch = None
        while True:
            await asyncio.sleep(min(FIRST_CHECK_S, self._interval_s))
            cluster = self._controller.cluster
            if cluster is None:
                epoch = None
            elif cluster.epoch != epoch:
                # Elected since: others may still be coming up.
                epoch, looked_s = cluster.epoch, loop.time() - self._interval_s + FIRST_CHECK_S
            elif loop.time() - looked_s >= self._interval_s:
                looked_s = loop.time()
                await self.look()

    async def look(self) -> None:
        cluster = self._controller.cluster
        if cluster is None or len(cluster.brokers) < 2:
            return
        keys = await self._gate.run(misled(cluster, self._percentage))
        if keys:
            await self._controller.elect(keys, False)
