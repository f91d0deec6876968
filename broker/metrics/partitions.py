"""The partitions of this broker: their logs, and for those that it leads their replicas and offsets.

Each series of a partition but those of its log comes from the leader alone, so that sums over brokers count it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.metrics.family import GAUGE, Family
from gregor.broker.metrics.kept_lines import KeptLines, batched
from gregor.protocol.topic_partition import TopicPartitionKey
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.replication.partition.partition import Partition
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.storage.log.log import Log

_LABELS = ("topic", "partition")
_AT_LEADER = "shown by the leader"

LOG_FAMILIES = (
    Family("kafka_log_log_size", GAUGE, _LABELS, "Bytes of the log of a replica, shown by each broker with one."),
    Family("kafka_log_log_logstartoffset", GAUGE, _LABELS, "Log start offset of a replica."),
    Family("kafka_log_log_logendoffset", GAUGE, _LABELS, "Log end offset of a replica."),
    Family("kafka_log_log_numlogsegments", GAUGE, _LABELS, "Segments of the log of a replica."),
)
LEADER_FAMILIES = (
    Family("kafka_cluster_partition_replicascount", GAUGE, _LABELS, f"Assigned replicas, {_AT_LEADER}."),
    Family("kafka_cluster_partition_insyncreplicascount", GAUGE, _LABELS, f"Replicas in sync, {_AT_LEADER}."),
    Family("kafka_cluster_partition_underreplicated", GAUGE, _LABELS, f"1 if a replica is not in sync, {_AT_LEADER}."),
    Family(
        "kafka_cluster_partition_underminisr",
        GAUGE,
        _LABELS,
        f"1 if fewer than min.insync.replicas are in sync, {_AT_LEADER}.",
    ),
    Family(
        "kafka_cluster_partition_atminisr",
        GAUGE,
        _LABELS,
        f"1 if exactly min.insync.replicas are in sync, {_AT_LEADER}.",
    ),
    Family(
        "kafka_cluster_partition_laststableoffsetlag",
        GAUGE,
        _LABELS,
        f"Offsets from the last stable offset to the high watermark, {_AT_LEADER}.",
    ),
    Family(
        "kafka_topic_partition_current_offset",
        GAUGE,
        _LABELS,
        f"High watermark: the offset after the last committed record, {_AT_LEADER}.",
    ),
    Family("kafka_topic_partition_oldest_offset", GAUGE, _LABELS, f"Log start offset of the partition, {_AT_LEADER}."),
    Family("kafka_topic_partition_leader", GAUGE, _LABELS, f"Broker id of the leader, {_AT_LEADER}."),
    Family("kafka_topic_partition_replicas", GAUGE, _LABELS, f"Assigned replicas, {_AT_LEADER}."),
    Family("kafka_topic_partition_in_sync_replica", GAUGE, _LABELS, f"Replicas in sync, {_AT_LEADER}."),
    Family("kafka_topic_partition_leader_is_preferred", GAUGE, _LABELS, f"1 if the first replica leads, {_AT_LEADER}."),
    Family(
        "kafka_topic_partition_under_replicated_partition",
        GAUGE,
        _LABELS,
        f"1 if a replica is not in sync, {_AT_LEADER}.",
    ),
)
FAMILIES = LOG_FAMILIES + LEADER_FAMILIES


class Figures:
    """Sums over the partitions, which are made in the same walk."""

    def __init__(self) -> None:
        self.partitions = self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.offline = self.delayed_produce = self.delayed_fetch = 0


class PartitionLines:
    """Makes the lines of the partitions."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._of_logs: KeptLines[TopicPartitionKey] = KeptLines(LOG_FAMILIES, _labels)
        self._of_led: KeptLines[TopicPartitionKey] = KeptLines(LEADER_FAMILIES, _labels)

    def collect(self, page: Page) -> Steps[Figures]:
        """Add the lines of all partitions; return the sums."""
        figures = Figures()
        for block in batched(list(self._replicas.partitions.items()), ITEMS_PER_STEP):
            keys: list[TopicPartitionKey] = []
            rows, led_keys, led_rows = [], [], []
            for key, partition in block:
                log = partition.log
                figures.partitions += 1
                if log is None:
                    figures.offline += 1
                    continue
                keys.append(key)
                rows.append(_values_of_log(log))
                if partition.is_leader:
                    values = _values(partition, log)
                    led_keys.append(key)
                    led_rows.append(values)
                    figures.leaders += 1
                    figures.under_replicated += values[_UNDER_REPLICATED]
                    figures.under_min_isr += values[_UNDER_MIN_ISR]
                    figures.at_min_isr += values[_AT_MIN_ISR]
                delayed = partition.delayed
                if delayed.active:
                    figures.delayed_produce += delayed.commits_count
                    figures.delayed_fetch += delayed.watchers_count
            self._of_logs.put(keys, rows)
            self._of_led.put(led_keys, led_rows)
            yield None
        yield from self._of_logs.end(page)
        yield from self._of_led.end(page)
        return figures


_UNDER_REPLICATED, _UNDER_MIN_ISR, _AT_MIN_ISR = (
    index for index, family in enumerate(LEADER_FAMILIES) if family.name.endswith(("underreplicated", "minisr"))
)


def _labels(key: TopicPartitionKey) -> str:
    return f'{{topic="{key[0]}",partition="{key[1]}"}}'  # the characters of a topic's name need no escapes


def _values_of_log(log: Log) -> tuple[int, ...]:
    """Return the values in the order of LOG_FAMILIES."""
    offsets = log.offsets
    return log.size_bytes, offsets.log_start_offset, offsets.log_end_offset, log.segments_count


def _values(partition: Partition, log: Log) -> tuple[int, ...]:
    """Return the values in the order of LEADER_FAMILIES."""
    offsets = log.offsets
    in_sync = partition.in_sync
    replicas, isr = len(partition.replicas), len(in_sync.isr)
    under_replicated = int(isr < replicas)
    min_isr = in_sync.effective_min_isr(log)
    return (
        replicas,
        isr,
        under_replicated,
        int(isr < min_isr),
        int(isr == min_isr),
        0 if log.producers.transactions is None else offsets.high_watermark - log.last_stable_offset,
        offsets.high_watermark,
        offsets.log_start_offset,
        partition.local_id,
        replicas,
        isr,
        int(partition.replicas[:1] == [partition.local_id]),
        under_replicated,
    )
