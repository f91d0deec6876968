"""The guard of each API, or the reason for which it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gregor.broker.authorization.guards import (
    cluster,
    configs,
    data,
    group_offsets,
    groups,
    topics,
    transactions,
    users,
)
from gregor.broker.authorization.model import Operation

if TYPE_CHECKING:
    from gregor.broker.authorization.guards.common import Guard
    from gregor.broker.context import Call
    from gregor.broker.registry import Entry, Handler

_ACTION, _ALTER, _DESCRIBE = Operation.CLUSTER_ACTION, Operation.ALTER, Operation.DESCRIBE

GUARDS: dict[int, Guard] = {
    0: data.produce,
    2: data.list_offsets,
    4: cluster.on_cluster(_ACTION, cluster.leader_and_isr),
    5: cluster.on_cluster(_ACTION, cluster.stop_replica),
    6: cluster.on_cluster(_ACTION, cluster.update_metadata),
    7: cluster.on_cluster(_ACTION, cluster.controlled_shutdown),
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    10: transactions.find_coordinator,
    11: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: groups.describe_groups,
    16: groups.list_groups,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: data.delete_records,
    22: transactions.init_producer_id,
    23: data.offset_for_leader_epoch,
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.end_txn,
    27: transactions.write_txn_markers,
    28: group_offsets.txn_offset_commit,
    29: cluster.on_cluster(_DESCRIBE, cluster.describe_acls),
    30: cluster.on_cluster(_ALTER, cluster.create_acls),
    31: cluster.on_cluster(_ALTER, cluster.delete_acls),
    32: configs.describe_configs,
    33: configs.alter_configs,
    34: cluster.on_cluster(_ALTER, cluster.alter_replica_log_dirs),
    35: cluster.on_cluster(_DESCRIBE, cluster.describe_log_dirs),
    37: topics.create_partitions,
    38: users.create_delegation_token,
    41: users.describe_delegation_token,
    42: groups.delete_groups,
    43: cluster.on_cluster(_ALTER, cluster.elect_leaders),
    44: configs.incremental_alter_configs,
    45: cluster.on_cluster(_ALTER, cluster.alter_partition_reassignments),
    46: cluster.on_cluster(_DESCRIBE, cluster.list_partition_reassignments),
    47: group_offsets.offset_delete,
    48: cluster.on_cluster(Operation.DESCRIBE_CONFIGS, users.describe_client_quotas),
    49: cluster.on_cluster(Operation.ALTER_CONFIGS, users.alter_client_quotas),
    50: cluster.on_cluster(_DESCRIBE, users.describe_user_scram_credentials),
    51: cluster.on_cluster(_ALTER, users.alter_user_scram_credentials),
    56: cluster.on_cluster(_ACTION, cluster.alter_partition),
    57: cluster.on_cluster(_ALTER, cluster.update_features),
    61: data.describe_producers,
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    67: cluster.on_cluster(_ACTION, cluster.allocate_producer_ids),
    68: groups.consumer_group_heartbeat,
    69: groups.consumer_group_describe,
    74: configs.list_config_resources,
}
"""By API key."""

UNGUARDED: dict[int, str] = {
    1: "the handler checks the partitions of the fetch session, READ on topics and CLUSTER_ACTION of followers",
    3: "the handler hides topics without DESCRIBE, and checks CREATE where it creates one",
    17: "serves clients that are not authenticated yet",
    18: "serves clients that are not authenticated yet, and names no resource",
    36: "serves clients that are not authenticated yet",
    39: "a token is renewed by its owner and its renewers, which the handler checks",
    40: "a token is ended by its owner and its renewers, which the handler checks",
    60: "every client may know the brokers; the handler shows the operations on the cluster with DESCRIBE",
    71: "every client may know which of its own metrics are requested, as in Apache Kafka",
    72: "every client may push its own metrics where a subscription requests them, as in Apache Kafka",
    75: "the handler hides topics without DESCRIBE",
}
"""The APIs without a guard, each with the reason."""


def guarded(entry: Entry) -> Entry:
    """Return the entry with its guard around the handler. Raises KeyError for an API without guard and reason."""
    guard = GUARDS.get(entry.key)
    if guard is None:
        UNGUARDED[entry.key]
        return entry
    return replace(entry, handler=_around(entry.handler, guard))


def _around(handler: Handler, guard: Guard) -> Handler:
    def guarded_handler(broker: Any, request: Any, call: Call) -> Any:
        return guard(broker, request, call, lambda allowed, call=call: handler(broker, allowed, call))

    return guarded_handler
