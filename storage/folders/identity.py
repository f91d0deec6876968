"""The files that identify a folder: `meta.properties` of a data folder, `partition.metadata` of a partition's folder.

`meta.properties` is a Java properties file (Kafka's MetaProperties):

    version=0                                version=1                    (KRaft)
    broker.id=0           may be missing     node.id=0
    cluster.id=XoSDz...   may be missing     cluster.id=XoSDz...
                                             directory.id=...             optional in both

`partition.metadata` is text (Kafka's PartitionMetadataFile, KIP-516), with no line end after the id:

    version: 0
    topic_id: ST_DYboMSwu29fD6Z_eltQ
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from gregor.config.properties import PropertiesError, parse_properties
from gregor.protocol.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from gregor.storage.folders.checkpoints import MalformedFile

META_PROPERTIES_FILE = "meta.properties"
PARTITION_METADATA_FILE = "partition.metadata"


class InconsistentFolder(Exception):
    """A data folder belongs to another broker or cluster. `str()` names the remedy."""


class MetaProperties(NamedTuple):
    """`others` holds the entries that this broker does not use, so that they survive a rewrite."""

    version: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None
    others: tuple[tuple[str, str], ...] = ()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Parse the file. Raises MalformedFile for content with which Kafka would not start either."""
    try:
        properties = parse_properties(data.decode())
    except (PropertiesError, UnicodeDecodeError) as error:
        raise MalformedFile(path, None, str(error)) from error
    version_text = properties.pop("version", "0")
    if version_text not in ("0", "1"):
        raise MalformedFile(path, None, f"version 0 or 1 expected, found {version_text!r}")
    version = int(version_text)
    id_key = "node.id" if version else "broker.id"
    id_text = properties.pop(id_key, None)
    broker_id = None
    if id_text is not None:
        if not (id_text.isascii() and id_text.isdigit() and len(id_text) <= 10):
            raise MalformedFile(path, None, f"{id_key} must be a number from 0 on, found {id_text!r}")
        broker_id = int(id_text)
    cluster_id = properties.pop("cluster.id", None)
    if version == 1 and (broker_id is None or cluster_id is None):
        raise MalformedFile(path, None, "node.id and cluster.id are both needed in version 1")
    return MetaProperties(version, broker_id, cluster_id, tuple(properties.items()))


def format_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    """Format the file as Java's Properties.store does: an empty comment, the date, then the entries."""
    lines = ["#", time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))]
    if meta.broker_id is not None:
        lines.append(f"{'node.id' if meta.version else 'broker.id'}={meta.broker_id}")
    lines.append(f"version={meta.version}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={_escaped(meta.cluster_id)}")
    lines += [f"{_escaped(key)}={_escaped(value)}" for key, value in meta.others]
    lines.append("")
    return "\n".join(lines).encode()


def agree_on_meta(
    stored: Mapping[str, MetaProperties | None], broker_id: int | None, cluster_id: str | None
) -> tuple[int | None, str | None]:
    """Return the broker id and the cluster id of all data folders; None where neither the caller nor a folder has one.

    `stored` has one entry per data folder, keyed by the path of its `meta.properties` (None: no such file yet).
    Raises InconsistentFolder when a folder contradicts the given ids or another folder.
    """
    broker_from = cluster_from = "the broker's settings"
    if cluster_id is not None:
        cluster_from = "the metadata store"
    for path, meta in stored.items():
        if meta is None:
            continue
        if meta.broker_id is not None:
            if broker_id is None:
                broker_id, broker_from = meta.broker_id, path
            elif broker_id != meta.broker_id:
                raise InconsistentFolder(
                    f"{path} belongs to broker {meta.broker_id}, but the broker id is {broker_id} in {broker_from}."
                    f" Set broker.id={meta.broker_id}, or let log.dirs name other folders; if this data is meant to"
                    f" move to broker {broker_id}, remove that file"
                )
        if meta.cluster_id is not None:
            if cluster_id is None:
                cluster_id, cluster_from = meta.cluster_id, path
            elif cluster_id != meta.cluster_id:
                raise InconsistentFolder(
                    f"{path} belongs to cluster {meta.cluster_id}, but the cluster id is {cluster_id} in"
                    f" {cluster_from}. Check zookeeper.connect, or let log.dirs name other folders; if this data is"
                    f" meant to move to cluster {cluster_id}, remove that file"
                )
    return broker_id, cluster_id


def format_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes, path: str) -> Uuid:
    """Return the topic id; later versions are read like version 0, as Kafka does to allow downgrades."""
    lines = data.decode(errors="replace").splitlines()
    if len(lines) < 2:
        raise MalformedFile(path, None, "two lines expected, version and topic_id")
    name, _, version = lines[0].partition(":")
    if name != "version" or not (version.strip().isascii() and version.strip().isdigit()):
        raise MalformedFile(path, 1, f"'version: <number>' expected, found {lines[0][:80]!r}")
    name, _, text = lines[1].partition(":")
    try:
        topic_id = uuid_from_text(text.strip())
    except ValueError as error:
        raise MalformedFile(path, 2, str(error)) from error
    if name != "topic_id" or topic_id == ZERO_UUID:
        raise MalformedFile(path, 2, f"'topic_id: <id>' expected, found {lines[1][:80]!r}")
    return topic_id


def _escaped(text: str) -> str:
    # Escapes all that parse_properties would interpret, in keys and in values.
    for char in "\\=:#! \t":
        text = text.replace(char, "\\" + char)
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\f", "\\f")
