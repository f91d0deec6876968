"""The output of `gregor topics --describe`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ConfigSource

from gregor.broker.cli.client import REQUEST_TIMEOUT_S, require_results
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.reassignments import Reassignment, list_reassignments, replication_factor
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import WireClient
from gregor.protocol.topic_partition import TopicPartitionKey

PARTITION_FILTERS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


@dataclass(slots=True)
class PartitionReport:
    """One partition as the broker describes it; `leader` is None if it has no leader."""

    number: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    reassignment: Reassignment | None = None

    @property
    def replication_factor(self) -> int:
        return replication_factor(self.replicas, self.reassignment)

    def wanted(self, filters: Collection[str], live_brokers: Collection[int], min_isr: int) -> bool:
        """Return whether one of the filter flags selects this partition; without filters all are selected."""
        leaderless = self.leader is None
        selected = {
            "--under-replicated-partitions": len(self.isr) < self.replication_factor,
            "--unavailable-partitions": leaderless or self.leader not in live_brokers,
            "--under-min-isr-partitions": leaderless or len(self.isr) < min_isr,
            "--at-min-isr-partitions": len(self.isr) == min_isr,
        }
        return not filters or any(selected[name] for name in filters)


@dataclass(slots=True)
class TopicReport:
    """One topic: its id as text (empty if the broker sent none), and its settings that are not defaults."""

    name: str
    topic_id: str
    partitions: list[PartitionReport]
    settings: dict[str, str]
    overridden: bool
    min_isr: int

    def summary(self) -> str:
        """Return the line above the partitions, as kafka-topics.sh prints it."""
        fields = [f"Topic: {self.name}"]
        if self.topic_id:
            fields.append(f"TopicId: {self.topic_id}")
        fields += [
            f"PartitionCount: {len(self.partitions)}",
            f"ReplicationFactor: {self.partitions[0].replication_factor if self.partitions else 0}",
            f"Configs: {','.join(f'{key}={value}' for key, value in self.settings.items())}",
        ]
        return "\t".join(fields)


def url_safe(topic_id: str) -> str:
    """Return Kafka's text of a topic id; "" for the zero id. The client library has the standard base64 alphabet."""
    text = topic_id.replace("+", "-").replace("/", "_").rstrip("=")
    return "" if set(text) <= {"A"} else text


def describe(admin: AdminClient, names: Sequence[str], live_brokers: Collection[int], given: Mapping[str, Any]) -> None:
    """Print the topics, or only the partitions that the filter flags select."""
    reports = collect(admin, names, _reassignments(given["bootstrap"], given["config_file"])) if names else []
    if given["topic_id"]:
        reports = [report for report in reports if report.topic_id == given["topic_id"]]
        if not reports and not given["if_exists"]:
            raise CommandError(f"no topic has the id {given['topic_id']}. `gregor topics --describe` shows the ids.")
    filters = [flag for flag in PARTITION_FILTERS if given[flag.removeprefix("--").replace("-", "_")]]
    for report in reports:
        if given["topics_with_overrides"]:
            if report.overridden:
                print(report.summary())
            continue
        chosen = [part for part in report.partitions if part.wanted(filters, live_brokers, report.min_isr)]
        print_report(report, chosen, summary=not filters)


def print_report(report: TopicReport, partitions: Sequence[PartitionReport], *, summary: bool) -> None:
    """Print these partitions of a topic, as kafka-topics.sh or, on a terminal, as a table."""
    (_print_drawn if on_terminal() else _print_plain)(report, partitions, summary)


def collect(
    admin: AdminClient, names: Sequence[str], moving: Mapping[TopicPartitionKey, Reassignment]
) -> list[TopicReport]:
    """Fetch partitions and settings of these topics."""
    described = require_results(admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    answers = require_results(admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S))
    settings: dict[str, dict[str, ConfigEntry]] = {resource.name: entries for resource, entries in answers.items()}
    reports = []
    for name in names:
        entries = settings[name]
        own = {key: str(entry.value) for key, entry in sorted(entries.items()) if not entry.is_default}
        min_isr = entries["min.insync.replicas"].value if "min.insync.replicas" in entries else None
        partitions = [
            PartitionReport(
                part.id,
                part.leader.id if part.leader is not None and part.leader.id >= 0 else None,
                [node.id for node in part.replicas],
                [node.id for node in part.isr],
                moving.get((name, part.id)),
            )
            for part in sorted(described[name].partitions, key=lambda part: part.id)
        ]
        overridden = any(is_topic_setting(entry) for entry in entries.values())
        topic_id = url_safe(str(described[name].topic_id))
        reports.append(TopicReport(name, topic_id, partitions, own, overridden, int(min_isr or 1)))
    return reports


def _reassignments(bootstrap: str, config_file: str | None) -> dict[TopicPartitionKey, Reassignment]:
    """Return the reassignments that are under way, for which confluent-kafka has no request."""
    try:
        client = WireClient(bootstrap, config_file)
    except CommandError:
        return {}
    with client:
        return list_reassignments(client)


def is_topic_setting(entry: ConfigEntry) -> bool:
    """Return whether the value is set on the topic itself, rather than inherited from the broker."""
    source: Any = entry.source  # a bare number in some releases of the client library
    return bool(getattr(source, "value", source) == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def _numbers(ids: Collection[int]) -> str:
    return ",".join(map(str, ids))


def _leader(part: PartitionReport) -> str:
    return "none" if part.leader is None else str(part.leader)


def _moves(part: PartitionReport) -> tuple[str, str]:
    """Return the replicas that are being added, and those that are being removed."""
    return (_numbers(part.reassignment.adding), _numbers(part.reassignment.removing)) if part.reassignment else ("", "")


def _print_plain(report: TopicReport, partitions: Sequence[PartitionReport], summary: bool) -> None:
    if summary:
        print(report.summary())
    for part in partitions:
        adding, removing = _moves(part)
        moves = f"\tAdding Replicas: {adding}\tRemoving Replicas: {removing}" if part.reassignment else ""
        # Eligible leader replicas (KIP-966) exist under KRaft only.
        print(
            f"\tTopic: {report.name}\tPartition: {part.number}\tLeader: {_leader(part)}"
            f"\tReplicas: {_numbers(part.replicas)}\tIsr: {_numbers(part.isr)}{moves}\tElr: N/A\tLastKnownElr: N/A"
        )


def _print_drawn(report: TopicReport, partitions: Sequence[PartitionReport], summary: bool) -> None:
    if not partitions and not summary:
        return
    names, is_moving = ["PARTITION", "LEADER", "REPLICAS", "ISR"], any(part.reassignment for part in partitions)
    if is_moving:
        names += ["ADDING", "REMOVING"]
    columns = [Column(name, number=name == "PARTITION") for name in names]
    rows = [
        (part.number, _leader(part), _numbers(part.replicas), _numbers(part.isr), *(_moves(part) if is_moving else ()))
        for part in partitions
    ]
    title = report.name
    if summary:
        title = "\n".join([f"{report.name}  id {report.topic_id}", *(f"  {k}={v}" for k, v in report.settings.items())])
    print_table(columns, rows, title)
