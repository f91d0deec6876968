"""Whether the segment files of a partition's leader are on this host, and where."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from gregor.config.properties import PropertiesError, parse_properties
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeAclsRequest, DescribeLogDirsRequest
from gregor.spark_jobs.arrow.segments import Unreadable

if TYPE_CHECKING:
    from gregor.spark_jobs.client.cluster import Cluster

META_PROPERTIES = "meta.properties"

_LOG_DIRS_VERSIONS = 0, 4
_ACLS_VERSIONS = 0, 3
_ANY = 1
"""The value ANY of a resource type, a pattern type, an operation and a permission."""


class LocalLog(NamedTuple):
    """The folder of a partition, of the broker that leads it in this epoch."""

    path: str
    leader: int
    leader_epoch: int
    topic_id: bytes


def find_local_log(cluster: Cluster, topic: str, partition: int) -> LocalLog:
    """Find the folder of the partition's leader. Raises Unreadable with the reason if it is not on this host, and
    KafkaFailure."""
    found = cluster.partition(topic, partition)
    leader = cluster.leader(topic, partition)
    if found.leader_epoch < 0:
        raise Unreadable(f"broker {leader} returns no leader epochs (Kafka 2.1), so that no truncation can be noticed")
    log_dir = _log_dir(cluster, leader, topic, partition)
    path = os.path.join(log_dir, f"{topic}-{partition}")
    if not os.path.isdir(path):
        raise Unreadable(f"broker {leader}, the leader of {topic}-{partition}, is on another host: {path} is not here")
    _check_identity(log_dir, cluster.cluster_id(), leader)
    return LocalLog(path, leader, found.leader_epoch, bytes(cluster.topics([topic])[topic].topic_id))


def has_authorizer(cluster: Cluster, node_id: int) -> bool:
    """Return whether the broker authorizes its clients, which a reader of files would bypass."""
    version = cluster.version(node_id, DescribeAclsRequest, _ACLS_VERSIONS[1], _ACLS_VERSIONS[0])
    request = DescribeAclsRequest(
        resource_type_filter=_ANY, pattern_type_filter=_ANY, operation=_ANY, permission_type=_ANY
    )
    code: int = cluster.exchange(node_id, request, version).error_code
    return code != ErrorCode.SECURITY_DISABLED


def _log_dir(cluster: Cluster, leader: int, topic: str, partition: int) -> str:
    """Return the data folder in which the leader has the partition."""
    version = cluster.version(leader, DescribeLogDirsRequest, _LOG_DIRS_VERSIONS[1], _LOG_DIRS_VERSIONS[0])
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[partition])
    response = cluster.exchange(leader, DescribeLogDirsRequest(topics=[wanted]), version)
    for folder in response.results:
        for described in folder.topics:
            if described.name == topic and not folder.error_code:
                for part in described.partitions:
                    if part.partition_index == partition and not part.is_future_key:
                        return str(folder.log_dir)
    raise Unreadable(f"broker {leader} names no data folder of {topic}-{partition}")


def _check_identity(log_dir: str, cluster_id: str | None, broker_id: int) -> None:
    """Check that the folder of this name is the broker's own: another host may have one of the same name."""
    path = os.path.join(log_dir, META_PROPERTIES)
    try:
        with open(path, "rb") as file:
            properties = parse_properties(file.read().decode())
    except (OSError, PropertiesError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    found = properties.get("cluster.id"), properties.get("node.id", properties.get("broker.id"))
    if cluster_id is None or found != (cluster_id, str(broker_id)):
        raise Unreadable(
            f"{path} is of broker {found[1]} of the cluster {found[0]}, not of broker {broker_id} of {cluster_id}"
        )
