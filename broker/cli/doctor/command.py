"""`gregor doctor`: checks a cluster as its clients see it, without changing anything."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gregor.broker.cli.client import CONNECT_TIMEOUT_S, load_file, parse_bootstrap
from gregor.broker.cli.client_security import channel_security
from gregor.broker.cli.command import bootstrap_option, command_config_option, run
from gregor.broker.cli.doctor.certificates import check_certificates
from gregor.broker.cli.doctor.checks import AUTHORIZER, Finding, Level, ObservedBroker, ObservedCluster, check
from gregor.broker.cli.doctor.groups import examine_groups
from gregor.broker.cli.doctor.host import check_config, check_limits
from gregor.broker.cli.doctor.hot_partitions import examine_hot_partitions
from gregor.broker.cli.doctor.quotas import examine_quotas
from gregor.broker.cli.doctor.replicas import check_replicas
from gregor.broker.cli.doctor.retries import examine_retries
from gregor.broker.cli.doctor.thrashing import examine_thrashing
from gregor.broker.cli.doctor.tls_probe import speaks_tls
from gregor.broker.cli.doctor.transactions import examine_transactions
from gregor.broker.cli.doctor.zookeeper import (
    Reach,
    all_reachable,
    check_session,
    check_zookeeper,
    check_zookeeper_of_brokers,
    read_registered,
)
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.reassignments import list_reassignments
from gregor.broker.cli.tables import on_terminal
from gregor.broker.cli.wire import WireClient
from gregor.broker.cli.zookeeper_security import security_of_file, security_of_texts, zk_tls_config_option
from gregor.broker.launch.local_zookeeper import four_letter_word
from gregor.config.definitions import ConfigError
from gregor.config.listeners import address_text
from gregor.config.security.zookeeper import ZooKeeperSecurity, zookeeper_security
from gregor.protocol.channel_security import PLAINTEXT
from gregor.protocol.messages import (
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.sasl.mechanism import GSSAPI
from gregor.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig

MAX_TIMESTAMP = -3
MAX_TIMESTAMP_VERSION = 7
DOCUMENTATION_VERSION = 3
PARTITIONS_DATED = 200
"""The number of partitions per leader whose largest timestamp is fetched."""
_TOPIC, _BROKER = 2, 4

EPILOG = """\b
Examples:
  gregor doctor
  gregor doctor --bootstrap-server kafka1:9092 --zookeeper zoo1:2181,zoo2:2181,zoo3:2181
  gregor doctor --config server.properties
  gregor doctor --zookeeper zoo1:2182 --zk-tls-config-file zookeeper-client.properties
"""

_MARKS = {Level.OK: ("ok   ", "green"), Level.NOTE: ("note ", "yellow"), Level.WRONG: ("WRONG", "red")}


@click.command("doctor", epilog=EPILOG)
@bootstrap_option()
@command_config_option()
@click.option("--zookeeper", metavar="HOST:PORT,..", help="ZooKeeper of the cluster, to check it, too.")
@zk_tls_config_option
@click.option("--config", "config_path", metavar="FILE", help="On the machine of a broker: its server.properties.")
def doctor(
    bootstrap: str,
    config_file: str | None,
    zookeeper: str | None,
    zk_tls_config_file: str | None,
    config_path: str | None,
) -> None:
    """Check a cluster from a client's side: addresses, names, clock, disks, partitions, certificates, transactions,
    groups, quotas, ZooKeeper. The connection to ZooKeeper has the settings of --zk-tls-config-file, else those of
    --config, else those of --command-config.

    Each finding is a line, with a remedy below it. The exit code is 1 if something is wrong.
    """
    findings: list[Finding] = []
    given = load_file(config_file) if config_file is not None else {}
    protocol = channel_security(given).security_protocol

    def report(found: Sequence[Finding]) -> None:
        findings.extend(found)
        for finding in found:
            show(finding)

    seen = None
    report(check_bootstrap(bootstrap))
    if any(finding.level is Level.OK for finding in findings):
        try:
            seen = observe_cluster(bootstrap, config_file)
            certificates = {broker.node_id: broker.certificate for broker in seen.brokers}
            report([*check(seen), *check_replicas(seen), *check_certificates(certificates, seen.now_ms)])
            report([*seen.hot_partitions, *seen.transactions, *seen.groups, *seen.quotas])
        except CommandError as error:
            remedy = remedy_for_peer(bootstrap, protocol, given.get("sasl.mechanism", "").strip() or GSSAPI)
            report([Finding(Level.WRONG, str(error).rstrip("."), remedy)])
    config = None
    if config_path is not None:
        cluster_id = seen.metadata.cluster_id if seen is not None else None
        at = {} if seen is None else {one.node_id: (one.host, one.port) for one in seen.brokers}
        config, found = check_config(config_path, cluster_id, at)
        report([*found, *check_limits(), *examine_retries(config_path)])
    security, found = security_for(zk_tls_config_file, config, given)
    report(found)
    if security is not None:
        connect = zookeeper or (config["zookeeper.connect"] if config is not None else "")
        report_zookeeper(connect, security, seen, report)
    wrong = sum(finding.level is Level.WRONG for finding in findings)
    if wrong:
        raise CommandError(f"{wrong} of {len(findings)} findings need a change.")


def security_for(
    file: str | None, config: BrokerConfig | None, given: Mapping[str, str]
) -> tuple[ZooKeeperSecurity | None, list[Finding]]:
    """Return the security of the connection to ZooKeeper, and None with a finding if the settings cannot be used.

    Raises CommandError for a file that was named for this connection alone.
    """
    if file is not None:
        return security_of_file(file), []
    try:
        return zookeeper_security(config) if config is not None else security_of_texts(given), []
    except ConfigError as error:
        return None, [Finding(Level.WRONG, str(error), "correct this setting; a broker does not start with it")]


def report_zookeeper(
    connect: str,
    security: ZooKeeperSecurity,
    seen: ObservedCluster | None,
    report: Callable[[Sequence[Finding]], None],
) -> None:
    """Check ZooKeeper, at the address that the brokers have if none is given, and the nodes of the brokers in it."""
    try:
        reach = Reach.of(security)
    except ConfigError as error:
        report([Finding(Level.WRONG, str(error), "correct this setting of the connection to ZooKeeper")])
        return
    found = check_zookeeper(connect, reach) if connect else []
    if not connect and seen is not None:
        connect, found = check_zookeeper_of_brokers(seen, reach)
    report(found)
    if connect and seen is not None and all_reachable(found):
        live = [broker.node_id for broker in seen.brokers]
        is_authorized = any(broker.authorizer for broker in seen.brokers)
        read = partial(read_registered, security=security)
        report(check_session(connect, live, seen.metadata.controller_id, read, is_authorized=is_authorized))


def show(finding: Finding) -> None:
    """Print a finding, with the remedy below it."""
    mark, colour = _MARKS[finding.level]
    print(f"{click.style(mark, fg=colour) if on_terminal() else mark} {finding.text}")
    if finding.remedy:
        print(f"      -> {finding.remedy}")


def check_bootstrap(bootstrap: str, connect: Callable[..., Any] = socket.create_connection) -> list[Finding]:
    """Check that each of the addresses accepts a connection."""
    found = []
    for host, port in parse_bootstrap(bootstrap):
        name = address_text(host, port)
        try:
            with connect((host, port), timeout=CONNECT_TIMEOUT_S) as opened:
                found.append(Finding(Level.OK, f"{name} accepts connections, at {opened.getpeername()[0]}"))
        except socket.gaierror:
            remedy = "correct the name, or add it to DNS or /etc/hosts of this host"
            found.append(Finding(Level.WRONG, f"{host} is not a known host", remedy))
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            remedy = "check that a broker is up there (`gregor start`) and listens on this address, and firewalls"
            found.append(Finding(Level.WRONG, f"{name} does not accept connections: {cause}", remedy))
    return found


def remedy_for_peer(bootstrap: str, protocol: str = PLAINTEXT, mechanism: str = "") -> str:
    """Return the remedy for a peer that accepts connections but does not answer like a listener of this protocol."""
    for host, port in parse_bootstrap(bootstrap):
        name = address_text(host, port)
        with suppress(OSError):
            if b"Zookeeper version" in four_letter_word(host, port, b"srvr"):
                return f"{name} is a ZooKeeper; give it with --zookeeper, and a broker with --bootstrap-server"
        if protocol in (PLAINTEXT, "SASL_PLAINTEXT") and speaks_tls(host, port):
            return f"{name} is a TLS listener; set security.protocol=SSL or SASL_SSL in the file of --command-config"
    if protocol == PLAINTEXT:
        return (
            "give a listener of a Kafka broker; one with SASL closes such connections: set security.protocol, "
            "sasl.mechanism and sasl.jaas.config in the file of --command-config"
        )
    if protocol.startswith("SASL_") and mechanism == GSSAPI:
        return (
            "compare sasl.kerberos.service.name and the principal in the keytab of the broker with its host name, and"
            " the clocks; where the broker refuses the client, its log of gregor.authorizer has the cause: its keytab"
            " is older than its key, or no rule of sasl.kerberos.principal.to.local.rules fits the client"
        )
    return "compare security.protocol and the settings ssl.* and sasl.* of --command-config with those of the listener"


def observe_cluster(bootstrap: str, config_file: str | None) -> ObservedCluster:
    """Observe the cluster and each of its brokers; raise CommandError if no broker answers."""
    with WireClient(bootstrap, config_file, "gregor-doctor") as client:
        metadata: MetadataResponse = client.send(MetadataRequest(topics=None))
        seen = ObservedCluster(bootstrap, client.peer, metadata, now_ms=int(time.time() * 1000))
        for node in sorted(metadata.brokers, key=lambda node: node.node_id):
            broker = ObservedBroker(node.node_id, node.host, node.port, resolve(node.host))
            seen.brokers.append(broker)
            if broker.addresses:
                try:
                    _observe_broker(client, broker)
                except CommandError as error:
                    broker.trouble = str(error).rstrip(".")
        seen.reassignments = list_reassignments(client)
        seen.min_isr = _min_isr(client, metadata)
        mute = {broker.node_id for broker in seen.brokers if broker.trouble}
        seen.newest_ms = _newest(client, metadata, mute)
        seen.transactions = examine_transactions(client, metadata, mute, seen.now_ms)
        seen.groups = [*examine_groups(client, mute), *examine_thrashing(client, mute, seen.now_ms)]
        is_gregor = bool(seen.brokers) and all(broker.is_gregor for broker in seen.brokers)
        seen.quotas = examine_quotas(client, is_gregor=is_gregor)
        seen.hot_partitions = examine_hot_partitions(client, seen)
    return seen


def resolve(host: str) -> list[str]:
    """Return the addresses of a name; none if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _observe_broker(client: WireClient, broker: ObservedBroker) -> None:
    node_id = broker.node_id
    metadata: MetadataResponse = client.send(MetadataRequest(topics=[]), node_id)
    broker.add_metadata(metadata)
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER,
        resource_name=str(node_id),
        configuration_keys=["broker.id", "zookeeper.connect", AUTHORIZER],
    )
    is_documented = client.version(DescribeConfigsRequest, node_id) >= DOCUMENTATION_VERSION
    request = DescribeConfigsRequest(resources=[wanted], include_documentation=is_documented)
    (answer,) = client.send(request, node_id).results
    broker.add_settings(answer)
    broker.add_certificate(client.certificate(node_id))
    broker.add_log_dirs(client.send(DescribeLogDirsRequest(topics=None), node_id), time.monotonic())


def _min_isr(client: WireClient, metadata: MetadataResponse) -> dict[str, int]:
    names = {
        str(topic.name)
        for topic in metadata.topics
        for partition in topic.partitions
        if len(partition.isr_nodes) < len(partition.replica_nodes)
    }
    if not names:
        return {}
    key = "min.insync.replicas"
    wanted = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=name, configuration_keys=[key]
        )
        for name in sorted(names)
    ]
    found = {}
    for answer in client.send(DescribeConfigsRequest(resources=wanted)).results:
        for entry in answer.configs:
            if entry.name == key and entry.value:
                found[answer.resource_name] = int(entry.value)
    return found


def _newest(client: WireClient, metadata: MetadataResponse, mute: Collection[int]) -> dict[str, int]:
    """Return the largest timestamp of the first partitions of each leader, except leaders that do not answer.

    Other checks report these. `mute` are brokers known not to answer, which saves waiting for them.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in metadata.topics:
        for partition in topic.partitions:
            by_leader.setdefault(partition.leader_id, []).append(
                TopicPartition(str(topic.name), partition.partition_index)
            )
    found: dict[str, int] = {}
    for leader, partitions in by_leader.items():
        if leader < 0 or leader in mute:
            continue
        with suppress(CommandError):
            if client.version(ListOffsetsRequest, leader) < MAX_TIMESTAMP_VERSION:
                continue
            topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
            for name, index in sorted(partitions)[:PARTITIONS_DATED]:
                one = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[]))
                one.partitions.append(
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=MAX_TIMESTAMP)
                )
            for answered in client.send(ListOffsetsRequest(replica_id=-1, topics=list(topics.values())), leader).topics:
                for part in answered.partitions:
                    if not part.error_code:
                        found[f"{answered.name}-{part.partition_index}"] = part.timestamp
    return found


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command, which needs no argument."""
    return run(doctor, arguments or ["--bootstrap-server", "localhost:9092"])
