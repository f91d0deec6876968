"""Authorized operations as bit fields, for requests that want to know them (KIP-430).

A bit is `1 << code of the operation` (Kafka's AclOperation). Without an authorizer: all operations on the resource.
"""

from __future__ import annotations

from functools import reduce

from gregor.broker.authorization.model import Operation

NOT_REQUESTED = -(2**31)


def _bits(*operations: Operation) -> int:
    return reduce(lambda bits, operation: bits | 1 << operation, operations, 0)


TOPIC_OPERATIONS = _bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = _bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
