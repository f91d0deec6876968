"""What `gregor doctor` concludes from what it has seen of a cluster. Facts in, findings out; nobody is asked here."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from gregor.broker.cli.log_dirs import UNKNOWN_BYTES, size_text
from gregor.config.listeners import address_text
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsResponse, MetadataResponse

AHEAD_MS = 10_000
"""A newest record this far in the future is told of: clocks of machines that keep time differ by less."""
MIN_FREE_SHARE = 0.05
LITTLE_FREE_SHARE = 0.15
_NAMES_SHOWN = 5


class Level(IntEnum):
    """How bad a finding is; from WRONG on the exit code is 1."""

    OK = 0
    NOTE = 1
    WRONG = 2


@dataclass(slots=True, frozen=True)
class Finding:
    """One line, and what to change; the remedy is empty where all is well."""

    level: Level
    text: str
    remedy: str = ""


@dataclass(slots=True)
class SeenBroker:
    """One broker that the cluster names, as it looks from here."""

    node_id: int
    host: str
    port: int
    addresses: Sequence[str] = ()
    """What the name resolves to here; empty: it does not."""
    trouble: str = ""
    """Why it could not be asked at its own address, if so."""
    answers_as: int | None = None
    """Which broker answers there: None is unknown, -1 another one than this."""
    controller_id: int = -1
    cluster_id: str | None = None
    live: frozenset[int] = frozenset()
    zookeeper: str = ""
    """Its zookeeper.connect, where it has one."""
    log_dirs: Sequence[DescribeLogDirsResponse.DescribeLogDirsResult] = ()

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)


@dataclass(slots=True)
class Seen:
    """A cluster, as it looks from here."""

    bootstrap: str
    peer: str
    """The IP address that the bootstrap server was reached at."""
    metadata: MetadataResponse
    brokers: list[SeenBroker] = field(default_factory=list)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas of topics that miss a replica."""
    newest_ms: Mapping[str, int] = field(default_factory=dict)
    """By partition, the largest timestamp of its records."""
    now_ms: int = 0


def check(seen: Seen) -> list[Finding]:
    """All there is to say about a cluster that answers."""
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


def check_address(broker: SeenBroker, seen: Seen) -> list[Finding]:
    """Whether a client that was sent to this broker gets there."""
    name = f"broker {broker.node_id} is advertised as {broker.address}"
    advertise = (
        f"set advertised.listeners of broker {broker.node_id} to a name or address that its clients can reach, "
        "and restart it"
    )
    loops = bool(broker.addresses) and all(map(_is_loopback, broker.addresses))
    if loops and not _is_loopback(seen.peer):
        text = (
            f"{name}, which is this machine itself, but {seen.bootstrap} is another one: clients are led to themselves"
        )
        return [Finding(Level.WRONG, text, advertise)]
    if not broker.addresses:
        text = f"{name}, and there is no such name here"
        return [Finding(Level.WRONG, text, f"have the name resolved here (DNS, /etc/hosts), or {advertise}")]
    if any(map(_is_anywhere, broker.addresses)):
        return [Finding(Level.WRONG, f"{name}, which is no address that one can connect to", advertise)]
    if broker.trouble:
        remedy = (
            f"is it up, and does no firewall stand between? A forwarded port needs advertised.listeners: {advertise}"
        )
        return [Finding(Level.WRONG, f"{name}, and cannot be asked there: {broker.trouble}", remedy)]
    twins = [one.node_id for one in seen.brokers if one is not broker and one.address == broker.address]
    if twins or broker.answers_as == -1:
        other = f" (as broker {twins[0]} is)" if twins else ""
        text = f"{name}{other}, but another broker answers there"
        return [Finding(Level.WRONG, text, f"each broker needs an address of its own: {advertise}")]
    return [Finding(Level.OK, f"{name} ({', '.join(broker.addresses)}) and answers there")]


def check_scope(seen: Seen) -> list[Finding]:
    """Brokers that only clients on this machine get to."""
    here = [
        broker.address
        for broker in seen.brokers
        if broker.addresses and all(map(_is_loopback, broker.addresses)) and not broker.trouble
    ]
    if not here or not _is_loopback(seen.peer):
        return []
    remedy = "if there are clients on others, have listeners and advertised.listeners name an address that they reach"
    return [Finding(Level.NOTE, f"{', '.join(here)}: for clients on this machine only", remedy)]


def check_agreement(seen: Seen) -> list[Finding]:
    """Whether the brokers speak of one cluster, with a controller."""
    found = []
    metadata = seen.metadata
    asked = [broker for broker in seen.brokers if not broker.trouble and broker.live]
    strangers = [broker for broker in asked if broker.cluster_id != metadata.cluster_id]
    for broker in strangers:
        text = f"{broker.address} belongs to cluster {broker.cluster_id}, {seen.bootstrap} to {metadata.cluster_id}"
        remedy = (
            "two clusters advertise one address: correct advertised.listeners, or zookeeper.connect with its chroot"
        )
        found.append(Finding(Level.WRONG, text, remedy))
    if metadata.controller_id < 0:
        text, remedy = "the cluster has no controller", "look into the brokers' logs; do they reach their ZooKeeper?"
        return [*found, Finding(Level.WRONG, text, remedy)]
    views = {(broker.controller_id, broker.live) for broker in asked if broker not in strangers}
    if len(views) > 1:
        told = ", ".join(
            f"broker {broker.node_id} sees controller {broker.controller_id} and {len(broker.live)} brokers"
            for broker in asked
        )
        remedy = "it passes after an election; if it stays, a broker cannot reach the controller or ZooKeeper"
        return [*found, Finding(Level.WRONG, f"the brokers do not agree: {told}", remedy)]
    count = len(metadata.brokers)
    text = (
        f"cluster {metadata.cluster_id}: {count} broker{'s' if count != 1 else ''}, controller {metadata.controller_id}"
    )
    return [*found, Finding(Level.OK, text)]


def check_folders(broker: SeenBroker) -> list[Finding]:
    """Data folders that failed, and volumes that are filling up."""
    found = []
    for folder in broker.log_dirs:
        name = f"broker {broker.node_id}, {folder.log_dir}"
        if folder.error_code:
            remedy = "its disk failed or is full; the broker's log has the cause. Repair it, then restart the broker"
            found.append(Finding(Level.WRONG, f"{name}: {ErrorCode(folder.error_code).name}", remedy))
        elif folder.total_bytes in (UNKNOWN_BYTES, 0) or folder.usable_bytes == UNKNOWN_BYTES:
            found.append(Finding(Level.OK, f"{name}: usable; this broker does not tell how full its volume is"))
        else:
            share = folder.usable_bytes / folder.total_bytes
            text = f"{name}: {size_text(folder.usable_bytes)} of {size_text(folder.total_bytes)} free ({share:.0%})"
            remedy = "lower retention.ms or retention.bytes of large topics (`gregor log-dirs --describe`), or add room"
            level = Level.OK
            if share < LITTLE_FREE_SHARE:
                level = Level.WRONG if share < MIN_FREE_SHARE else Level.NOTE
            found.append(Finding(level, text, remedy if level else ""))
    return found


def check_partitions(seen: Seen) -> list[Finding]:
    """Partitions without a leader, without copies, or not writable with acks=all."""
    offline, behind, refused = [], [], []
    count = 0
    for topic in seen.metadata.topics:
        least = seen.min_isr.get(topic.name or "", 1)
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.partition_index}"
            if partition.leader_id < 0:
                offline.append(name)
            elif len(partition.isr_nodes) < len(partition.replica_nodes):
                behind.append(name)
                if len(partition.isr_nodes) < least:
                    refused.append(name)
    if not offline and not behind:
        return [Finding(Level.OK, f"partitions: {count}, each with a leader and all its replicas in sync")]
    found = []
    start = "start the brokers that are down: `gregor topics --describe --under-replicated-partitions` names replicas"
    if offline:
        lost = "`gregor leader-election --election-type unclean`, which loses records"
        remedy = f"{start}. If such a broker will not come back: {lost}"
        found.append(Finding(Level.WRONG, f"{_some(offline)} without a leader: clients cannot read or write", remedy))
    if refused:
        text = (
            f"{_some(refused)} with fewer replicas in sync than min.insync.replicas: writes with acks=all are refused"
        )
        found.append(Finding(Level.WRONG, text, start))
    if behind:
        found.append(Finding(Level.WRONG, f"{_some(behind)} with replicas that are not in sync", start))
    return found


def check_clock(seen: Seen) -> list[Finding]:
    """A newest record from the future shows a clock ahead; one behind shows in ZooKeeper (`doctor_zookeeper`)."""
    ahead = {name: newest for name, newest in seen.newest_ms.items() if newest - seen.now_ms > AHEAD_MS}
    if ahead:
        name = max(ahead, key=ahead.__getitem__)
        seconds = (ahead[name] - seen.now_ms) / 1000
        text = f"{_some(sorted(ahead))} with records from the future, by up to {seconds:.0f} s ({name})"
        remedy = (
            "compare the clocks of the producers, of the brokers and of this machine with `date -u`; run an NTP client "
            "on all"
        )
        return [Finding(Level.WRONG, text, remedy)]
    if not any(newest >= 0 for newest in seen.newest_ms.values()):
        return []
    return [Finding(Level.OK, "no record is from the future, by the clock of this machine")]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{len(names)} partition{'s' if len(names) != 1 else ''} ({shown}{f' and {more} more' if more > 0 else ''})"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_anywhere(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_unspecified
