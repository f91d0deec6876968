"""The check of `gregor doctor` for the brokers behind partitions that are out of sync: those that are down, and those
that live and do not keep up."""

from __future__ import annotations

from gregor.broker.cli.doctor.checks import Finding, Level, ObservedCluster, some_partitions


def check_replicas(seen: ObservedCluster) -> list[Finding]:
    """Name each broker that has a replica and is not in the cluster, or whose replicas are not in sync, but for those
    that a reassignment is adding."""
    live = {broker.node_id: broker for broker in seen.brokers}
    down: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    for topic in seen.metadata.topics:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            reassignment = seen.reassignments.get((topic.name or "", partition.partition_index))
            adding = () if reassignment is None else reassignment.adding
            for broker_id in partition.replica_nodes:
                if broker_id not in live:
                    down.setdefault(broker_id, []).append(name)
                elif broker_id not in partition.isr_nodes and broker_id not in adding:
                    behind.setdefault(broker_id, []).append(name)
    found = []
    for broker_id, names in sorted(down.items()):
        text = f"broker {broker_id} is not in the cluster, and has replicas of {some_partitions(names)}"
        remedy = (
            "see why in its log, and start it; if it is lost, move its replicas: kafka-reassign-partitions.sh with"
            " --generate and --execute"
        )
        found.append(Finding(Level.WRONG, text, remedy))
    for broker_id, names in sorted(behind.items()):
        if live[broker_id].trouble:
            continue  # it does not answer, which `check_address` reports
        text = f"broker {broker_id} is up, and its replicas of {some_partitions(names)} do not keep up with the leaders"
        remedy = (
            "after a start this ends when it has caught up; else compare its disk, network and processor with those of"
            " the leaders, see its log, and delete *.replication.throttled.rate if no reassignment runs"
        )
        found.append(Finding(Level.WRONG, text, remedy))
    return found
