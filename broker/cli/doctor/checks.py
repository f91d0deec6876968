"""The findings of `gregor doctor`, computed from the observations of a cluster without further requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from gregor.broker.cli.log_dirs import UNKNOWN_BYTES, size_text
from gregor.broker.cli.reassignments import Reassignment, replication_factor
from gregor.config.listeners import address_text
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeConfigsResponse, DescribeLogDirsResponse, MetadataResponse
from gregor.protocol.topic_partition import TopicPartitionKey

AUTHORIZER = "authorizer.class.name"
AHEAD_MS = 10_000
"""A newest record further in the future is reported: clocks that are kept by NTP differ by less."""
MIN_FREE_SHARE = 0.05
LITTLE_FREE_SHARE = 0.15
_NAMES_SHOWN = 5


class Level(IntEnum):
    """The severity of a finding; with one of WRONG the exit code is 1."""

    OK = 0
    NOTE = 1
    WRONG = 2


@dataclass(slots=True, frozen=True)
class Finding:
    """One line, and the remedy, which is empty for OK."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(slots=True)
class ObservedBroker:
    """A broker in the metadata of the cluster, as this host observes it."""

    node_id: int
    host: str
    port: int
    addresses: Sequence[str] = ()
    """The addresses that this host resolves the name to; empty if it cannot resolve it."""
    trouble: str = ""
    """The reason why the broker did not answer at its own address; empty if it did."""
    answers_as: int | None = None
    """The broker that answers at this address: None if unknown, -1 for another than this one."""
    controller_id: int = -1
    cluster_id: str | None = None
    live: frozenset[int] = frozenset()
    zookeeper: str = ""
    """Its zookeeper.connect, if it has one."""
    authorizer: str = ""
    """Its authorizer.class.name, if it has one."""
    is_gregor: bool = False
    log_dirs: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult] = ()
    sized_at_s: float = 0.0
    """When its folders were read, by time.monotonic()."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """Its certificate as SSLSocket.getpeercert returns it; empty without TLS."""

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    def add_metadata(self, metadata: MetadataResponse) -> None:
        """Add the cluster as this broker sees it."""
        self.controller_id, self.cluster_id = metadata.controller_id, metadata.cluster_id
        self.live = frozenset(one.node_id for one in metadata.brokers)

    def add_settings(self, answer: DescribeConfigsResponse.DescribeConfigsResult) -> None:
        """Add its settings. A broker describes only its own: another one at this address refuses the request."""
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST):
            return
        self.answers_as = self.node_id if answer.error_code == ErrorCode.NONE else -1
        texts = {one.name: one.value or "" for one in answer.configs}
        self.zookeeper = texts.get("zookeeper.connect", "")
        self.authorizer = texts.get(AUTHORIZER, "")
        # The help of this key names a command of gregor's own; Apache Kafka's does not.
        self.is_gregor = any(one.name == AUTHORIZER and "gregor" in (one.documentation or "") for one in answer.configs)

    def add_certificate(self, certificate: Mapping[str, Any]) -> None:
        """Add the certificate that it has shown."""
        self.certificate = certificate

    def add_log_dirs(self, answer: DescribeLogDirsResponse, now_s: float) -> None:
        """Add its data folders, where it describes them, and the time of their sizes."""
        self.sized_at_s = now_s
        if not answer.error_code:
            self.log_dirs = answer.results


@dataclass(slots=True)
class ObservedCluster:
    """A cluster, as this host observes it."""

    bootstrap: str
    peer: str
    """The IP address that the bootstrap server was reached at."""
    metadata: MetadataResponse
    brokers: list[ObservedBroker] = field(default_factory=list)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas of topics with a replica that is not in sync."""
    reassignments: Mapping[TopicPartitionKey, Reassignment] = field(default_factory=dict)
    """Those that are under way, by partition."""
    newest_ms: Mapping[str, int] = field(default_factory=dict)
    """The largest timestamp of the records of each partition."""
    transactions: Sequence[Finding] = ()
    """The findings about transactions (gregor.broker.cli.doctor.transactions)."""
    groups: Sequence[Finding] = ()
    """The findings about groups (gregor.broker.cli.doctor.groups and .thrashing)."""
    hot_partitions: Sequence[Finding] = ()
    """The findings about hot partitions (gregor.broker.cli.doctor.hot_partitions)."""
    quotas: Sequence[Finding] = ()
    """The findings about quotas (gregor.broker.cli.doctor.quotas)."""
    now_ms: int = 0


def check(seen: ObservedCluster) -> list[Finding]:
    """Return the findings about a cluster that answers."""
    findings = []
    for broker in seen.brokers:
        findings += check_address(broker, seen)
    findings += check_scope(seen)
    findings += check_agreement(seen)
    for broker in seen.brokers:
        findings += check_folders(broker)
    findings += check_partitions(seen)
    findings += check_clock(seen)
    return findings


def check_address(broker: ObservedBroker, seen: ObservedCluster) -> list[Finding]:
    """Check that a client that connects to the advertised address reaches this broker."""
    name = f"broker {broker.node_id} is advertised as {broker.address}"
    advertise = (
        f"set advertised.listeners of broker {broker.node_id} to a name or address that its clients can reach, "
        "and restart it"
    )
    loops = bool(broker.addresses) and all(map(_is_loopback, broker.addresses))
    if loops and not _is_loopback(seen.peer):
        text = f"{name}, a loopback address, but {seen.bootstrap} is another machine: clients connect to themselves"
        return [Finding(Level.WRONG, text, advertise)]
    if not broker.addresses:
        text = f"{name}, a name that this host cannot resolve"
        return [Finding(Level.WRONG, text, f"add the name to DNS or /etc/hosts of this host, or {advertise}")]
    if any(map(_is_anywhere, broker.addresses)):
        return [Finding(Level.WRONG, f"{name}, an address that no client can connect to", advertise)]
    if broker.trouble:
        remedy = f"check that it is up and that no firewall blocks the connection; behind a forwarded port, {advertise}"
        return [Finding(Level.WRONG, f"{name}, and does not answer there: {broker.trouble}", remedy)]
    twins = [one.node_id for one in seen.brokers if one is not broker and one.address == broker.address]
    if twins or broker.answers_as == -1:
        other = f", as broker {twins[0]} is" if twins else ""
        text = f"{name}{other}, and another broker answers there"
        return [Finding(Level.WRONG, text, f"each broker needs its own address: {advertise}")]
    return [Finding(Level.OK, f"{name} ({', '.join(broker.addresses)}) and answers there")]


def check_scope(seen: ObservedCluster) -> list[Finding]:
    """Report brokers that only clients on this machine can reach."""
    here = [
        broker.address
        for broker in seen.brokers
        if broker.addresses and all(map(_is_loopback, broker.addresses)) and not broker.trouble
    ]
    if not here or not _is_loopback(seen.peer):
        return []
    remedy = "for clients on other machines, set listeners and advertised.listeners to an address that they can reach"
    return [Finding(Level.NOTE, f"only clients on this machine can reach {', '.join(here)}", remedy)]


def check_agreement(seen: ObservedCluster) -> list[Finding]:
    """Check that the brokers belong to one cluster and agree on its controller."""
    found = []
    metadata = seen.metadata
    reachable = [broker for broker in seen.brokers if not broker.trouble and broker.live]
    strangers = [broker for broker in reachable if broker.cluster_id != metadata.cluster_id]
    for broker in strangers:
        text = f"{broker.address} belongs to cluster {broker.cluster_id}, {seen.bootstrap} to {metadata.cluster_id}"
        remedy = (
            "two clusters advertise one address; correct advertised.listeners, or zookeeper.connect with its chroot"
        )
        found.append(Finding(Level.WRONG, text, remedy))
    if metadata.controller_id < 0:
        text, remedy = "the cluster has no controller", "check in the brokers' logs whether they reach ZooKeeper"
        return [*found, Finding(Level.WRONG, text, remedy)]
    views = {(broker.controller_id, broker.live) for broker in reachable if broker not in strangers}
    if len(views) > 1:
        views_text = ", ".join(
            f"broker {broker.node_id} has controller {broker.controller_id} and {len(broker.live)} brokers"
            for broker in reachable
        )
        remedy = "this ends after an election; if it persists, a broker cannot reach the controller or ZooKeeper"
        return [*found, Finding(Level.WRONG, f"the brokers have different metadata: {views_text}", remedy)]
    count = len(metadata.brokers)
    text = (
        f"cluster {metadata.cluster_id}: {count} broker{'s' if count != 1 else ''}, controller {metadata.controller_id}"
    )
    return [*found, Finding(Level.OK, text)]


def check_folders(broker: ObservedBroker) -> list[Finding]:
    """Check for failed data folders and full volumes."""
    found = []
    for folder in broker.log_dirs:
        name = f"broker {broker.node_id}, {folder.log_dir}"
        if folder.error_code:
            remedy = "its disk has failed or is full, see the broker's log; repair it, then restart the broker"
            found.append(Finding(Level.WRONG, f"{name}: {ErrorCode(folder.error_code).name}", remedy))
        elif folder.total_bytes in (UNKNOWN_BYTES, 0) or folder.usable_bytes == UNKNOWN_BYTES:
            found.append(Finding(Level.OK, f"{name}: usable; this broker does not report the free space of the volume"))
        else:
            share = folder.usable_bytes / folder.total_bytes
            text = f"{name}: {size_text(folder.usable_bytes)} of {size_text(folder.total_bytes)} free ({share:.0%})"
            remedy = (
                "lower retention.ms or retention.bytes of large topics (`gregor log-dirs --describe`), or add space"
            )
            level = Level.OK
            if share < LITTLE_FREE_SHARE:
                level = Level.WRONG if share < MIN_FREE_SHARE else Level.NOTE
            found.append(Finding(level, text, remedy if level else ""))
    return found


def check_partitions(seen: ObservedCluster) -> list[Finding]:
    """Check for partitions without a leader, with replicas out of sync, or not writable with acks=all."""
    offline, behind, refused = [], [], []
    count = 0
    for topic in seen.metadata.topics:
        least = seen.min_isr.get(topic.name or "", 1)
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition_index}"
            reassignment = seen.reassignments.get((topic.name or "", partition.partition_index))
            if partition.leader_id < 0:
                offline.append(name)
            elif len(partition.isr_nodes) < replication_factor(partition.replica_nodes, reassignment):
                behind.append(name)
                if len(partition.isr_nodes) < least:
                    refused.append(name)
    if not offline and not behind:
        return [Finding(Level.OK, f"partitions: {count}, each with a leader and all its replicas in sync")]
    found = []
    start = "start the brokers that are down: `gregor topics --describe --under-replicated-partitions` names replicas"
    if offline:
        lost = "`gregor leader-election --election-type unclean`, which loses records"
        remedy = f"{start}. If such a broker is lost: {lost}"
        found.append(
            Finding(Level.WRONG, f"{some_partitions(offline)} without a leader: clients cannot read or write", remedy)
        )
    if refused:
        text = (
            f"{some_partitions(refused)} with fewer replicas in sync than min.insync.replicas: writes with acks=all "
            "are refused"
        )
        found.append(Finding(Level.WRONG, text, start))
    if behind:
        found.append(Finding(Level.WRONG, f"{some_partitions(behind)} with replicas that are not in sync", start))
    return found


def check_clock(seen: ObservedCluster) -> list[Finding]:
    """Check for records from the future, which show a clock that is ahead; `zookeeper.py` finds one that is behind."""
    ahead = {name: newest for name, newest in seen.newest_ms.items() if newest - seen.now_ms > AHEAD_MS}
    if ahead:
        name = max(ahead, key=ahead.__getitem__)
        seconds = (ahead[name] - seen.now_ms) / 1000
        text = f"{some_partitions(sorted(ahead))} with timestamps in the future, by up to {seconds:.0f} s ({name})"
        remedy = (
            "compare the clocks of the producers, the brokers and this machine with `date -u`; run an NTP client on "
            "each of them"
        )
        return [Finding(Level.WRONG, text, remedy)]
    if not any(newest >= 0 for newest in seen.newest_ms.values()):
        return []
    return [Finding(Level.OK, "no record has a timestamp in the future, by the clock of this machine")]


def some_partitions(names: Sequence[str]) -> str:
    """Return the number of partitions, with the first names."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{len(names)} partition{'s' if len(names) != 1 else ''} ({shown}{f' and {more} more' if more > 0 else ''})"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_anywhere(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_unspecified
