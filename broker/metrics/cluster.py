"""The broker's part in its cluster: its replicas as a whole, the controller, and what only one broker shows.

The number of brokers comes from the controller's broker, the number of a topic's partitions from the leader of its
first partition that has one, and the partitions without a leader from the controller, so that each is shown once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.metrics.family import COUNTER, GAUGE, Family, label_text
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gregor.broker.metrics.page import Page
    from gregor.broker.metrics.partitions import Figures
    from gregor.protocol.topic_partition import TopicPartition
    from gregor.replication.controller.context import Cluster
    from gregor.replication.controller.loop import ControllerLoop
    from gregor.replication.partition.metadata_image import MetadataImage, TopicState
    from gregor.replication.partition.replica_manager import ReplicaManager
    from gregor.replication.traffic import TopicTraffic
    from gregor.storage.folders.manager import LogManager

_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_OFFLINE_FOLDERS = "kafka_log_logmanager_offlinelogdirectorycount"
_UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"
_ZERO_ELSEWHERE = "0 on brokers that are not the controller"

FAMILIES = (
    Family(f"{_REPLICAS}partitioncount", GAUGE, (), "Replicas on this broker."),
    Family(f"{_REPLICAS}leadercount", GAUGE, (), "Partitions that this broker leads."),
    Family(
        f"{_REPLICAS}underreplicatedpartitions",
        GAUGE,
        (),
        "Led partitions with fewer replicas in sync than are assigned, without those that a reassignment is adding.",
    ),
    Family(
        f"{_REPLICAS}underminisrpartitioncount",
        GAUGE,
        (),
        "Led partitions with fewer than min.insync.replicas in sync: writes with acks=all are refused.",
    ),
    Family(f"{_REPLICAS}atminisrpartitioncount", GAUGE, (), "Led partitions with exactly min.insync.replicas in sync."),
    Family(f"{_REPLICAS}offlinereplicacount", GAUGE, (), "Replicas whose log cannot be served, as its disk failed."),
    Family(_OFFLINE_FOLDERS, GAUGE, (), "Log directories of this broker whose disk failed."),
    Family(f"{_REPLICAS}isrshrinks_total", COUNTER, (), "Replicas' departures from the sets in sync, at the leader."),
    Family(f"{_REPLICAS}isrexpands_total", COUNTER, (), "Replicas' returns to the sets in sync, at the leader."),
    Family(f"{_CONTROLLER}activecontrollercount", GAUGE, (), "1 if this broker is the controller, else 0."),
    Family(f"{_CONTROLLER}offlinepartitionscount", GAUGE, (), f"Partitions without a leader; {_ZERO_ELSEWHERE}."),
    Family(f"{_CONTROLLER}activebrokercount", GAUGE, (), f"Live brokers; {_ZERO_ELSEWHERE}."),
    Family(f"{_CONTROLLER}globaltopiccount", GAUGE, (), f"Topics; {_ZERO_ELSEWHERE}."),
    Family(f"{_CONTROLLER}globalpartitioncount", GAUGE, (), f"Partitions; {_ZERO_ELSEWHERE}."),
    Family(
        f"{_CONTROLLER}preferredreplicaimbalancecount",
        GAUGE,
        (),
        f"Partitions that another replica than the first leads; {_ZERO_ELSEWHERE}.",
    ),
    Family(
        _UNCLEAN,
        COUNTER,
        (),
        "Leaders that this broker as the controller elected out of sync: committed records may be lost.",
    ),
    Family("kafka_brokers", GAUGE, (), "Live brokers, shown by the controller."),
    Family("kafka_broker_info", GAUGE, ("id", "address"), "1 for each live broker, shown by the controller."),
    Family(
        "kafka_topic_partitions",
        GAUGE,
        ("topic",),
        "Partitions of the topic, shown by the leader of the first one that has a leader, else by the controller.",
    ),
)

_NO_LEADER = -1


class _Counts:
    """The sums over the partitions of a controller context."""

    def __init__(self) -> None:
        self.partitions = self.imbalanced = 0
        self.leaderless: list[tuple[TopicPartition, int]] = []
        """Partitions that no live broker leads, with the number of their replicas."""

    def add(self, key: TopicPartition, leader: int, replicas: Sequence[int], *, is_live: bool) -> None:
        """Count a partition; `is_live`: its leader is."""
        self.partitions += 1
        self.imbalanced += leader != next(iter(replicas), _NO_LEADER)
        if not is_live:
            self.leaderless.append((key, len(replicas)))


def _count(counts: _Counts, cluster: Cluster | None) -> Steps[None]:
    for count, (key, topic, partition) in enumerate(() if cluster is None else cluster.partitions(), 1):
        if cluster is not None and not topic.deleting:
            leader = _NO_LEADER if partition.state is None else partition.state.leader
            counts.add(key, leader, partition.assignment.replicas, is_live=leader in cluster.brokers)
        if not count % ITEMS_PER_STEP:
            yield None


class ClusterView:
    """Reads the controller context, where this broker is the controller, and its metadata image."""

    def __init__(self, replicas: ReplicaManager, logs: LogManager, image: MetadataImage) -> None:
        self._replicas = replicas
        self._logs = logs
        self._image = image
        self._topics_known_as: tuple[int, bool] | None = None
        """The version of the image, and whether this broker was the controller, when `_topic_lines` were made."""
        self._topic_lines: list[bytes] = []
        self._counted: tuple[Cluster | None, _Counts] = None, _Counts()
        """A controller context, which never changes, and what was counted in it."""

    def collect(self, page: Page, figures: Figures, total: TopicTraffic, controller: ControllerLoop) -> Steps[None]:
        """Add the families of this module. `total`: the sums over all topics."""
        cluster = controller.cluster
        for name, value in (
            ("partitioncount", figures.partitions),
            ("leadercount", figures.leaders),
            ("underreplicatedpartitions", figures.under_replicated),
            ("underminisrpartitioncount", figures.under_min_isr),
            ("atminisrpartitioncount", figures.at_min_isr),
            ("offlinereplicacount", figures.offline),
            ("isrshrinks_total", total.isr_shrinks),
            ("isrexpands_total", total.isr_expands),
        ):
            page.add(f"{_REPLICAS}{name}", value)
        logs = self._logs
        page.add(_OFFLINE_FOLDERS, len(logs.folders) - len(logs.online_folders()))
        page.add(_UNCLEAN, controller.unclean_elections_count)
        yield from self._controller(page, cluster)
        if cluster is not None:
            self._brokers(page)
        yield from self._topics(page, is_controller=cluster is not None)

    def _topics(self, page: Page, *, is_controller: bool) -> Steps[None]:
        known_as = self._image.version, is_controller
        if self._topics_known_as != known_as:
            lines = []
            for count, topic in enumerate(self._image.topics(), 1):
                if self._shows(topic, is_controller=is_controller):
                    labels = label_text(topic=topic.name)
                    lines.append(f"kafka_topic_partitions{labels} {len(topic.partitions)}\n".encode())
                if not count % ITEMS_PER_STEP:
                    yield None
            self._topic_lines, self._topics_known_as = lines, known_as
            yield None
        page.extend("kafka_topic_partitions", self._topic_lines)

    def _shows(self, topic: TopicState, *, is_controller: bool) -> bool:
        for index in sorted(topic.partitions):
            leader = topic.partitions[index].leader
            if leader != _NO_LEADER:
                return leader == self._replicas.broker_id
        return is_controller

    def _controller(self, page: Page, cluster: Cluster | None) -> Steps[None]:
        if self._counted[0] is not cluster:
            counts = _Counts()
            yield from _count(counts, cluster)
            self._counted = cluster, counts
        counts = self._counted[1]
        for key, replicas in counts.leaderless:
            self._leaderless(page, *key, replicas)
        for name, value in (
            ("activecontrollercount", int(cluster is not None)),
            ("offlinepartitionscount", len(counts.leaderless)),
            ("activebrokercount", 0 if cluster is None else len(cluster.brokers)),
            ("globaltopiccount", 0 if cluster is None else len(cluster.topics)),
            ("globalpartitioncount", counts.partitions),
            ("preferredreplicaimbalancecount", counts.imbalanced),
        ):
            page.add(f"{_CONTROLLER}{name}", value)

    def _leaderless(self, page: Page, topic: str, index: int, replicas: int) -> None:
        """Show a partition that no broker leads: its leader is -1, and no replica is in sync with one."""
        labels = label_text(topic=topic, partition=index)
        for name, value in (
            ("leader", _NO_LEADER),
            ("replicas", replicas),
            ("in_sync_replica", 0),
            ("leader_is_preferred", 0),
            ("under_replicated_partition", 1),
        ):
            page.add(f"kafka_topic_partition_{name}", value, labels)

    def _brokers(self, page: Page) -> None:
        brokers = self._image.brokers
        page.add("kafka_brokers", len(brokers))
        for broker_id, broker in brokers.items():
            endpoint = next(iter(broker.endpoints.values()), None)
            address = "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"
            page.add("kafka_broker_info", 1, label_text(id=broker_id, address=address))
