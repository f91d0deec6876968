"""The level of transaction.version in a cluster: finalised by the command, and seen in what the coordinators write."""

from __future__ import annotations

import subprocess
import sys

from gregor.coordinator.txn.states import STATUS, TransactionState
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    TransactionLogKey,
    TransactionLogValue,
)
from gregor.protocol.topic_names import TRANSACTION_STATE_TOPIC
from tests.compat.confluent import read_to_end, reading
from tests.compat.records import WAIT_S, until
from tests.support.processes import ROOT, clean_environment
from tests.support.wire import ask_at

FEATURE = "transaction.version"
OLD, NEW = 0, 2
"""The levels of the old protocol and of the new one, in which each transaction has an epoch of its own (KIP-890)."""
_ONGOING = STATUS[TransactionState.ONGOING]
_VERSION_BYTES = 2
"""The version before a key and a value of `__transaction_state`."""


def upgrade_feature(bootstrap: str, feature: str, level: int) -> None:
    """Finalise a level of a feature, as an operator does it with ZooKeeper."""
    words = ("features", "upgrade", "--bootstrap-server", bootstrap, "--feature", f"{feature}={level}")
    command = [sys.executable, "-m", "gregor.broker", *words]
    subprocess.run(command, cwd=ROOT, env=clean_environment(), check=True, timeout=WAIT_S)


def finalise_new_protocol(bootstrap: str) -> None:
    """Return when each broker shows the level to clients that connect."""
    upgrade_feature(bootstrap, FEATURE, NEW)
    addresses = bootstrap.split(",")
    until(lambda: {shown(address) for address in addresses} == {NEW}, f"{FEATURE} {NEW} at each broker")


def shown(address: str) -> int:
    """Return the level that a broker shows to clients; 0 if the feature is not finalised."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response: ApiVersionsResponse = ask_at(address, request, 3, WAIT_S)
    levels = {one.name: one.max_version_level for one in response.finalized_features}
    return levels.get(FEATURE, OLD)


def used_by(bootstrap: str) -> dict[str, set[int]]:
    """Return for each transactional id the protocols of its transactions, by the coordinators' records.

    Only those of open transactions count: when a coordinator aborts one by itself, it does so by the finalised level.
    """
    consumer = reading(bootstrap)
    found: dict[str, set[int]] = {}
    try:
        for partition in (
            consumer.list_topics(TRANSACTION_STATE_TOPIC, WAIT_S).topics[TRANSACTION_STATE_TOPIC].partitions
        ):
            for message in read_to_end(consumer, TRANSACTION_STATE_TOPIC, 0, partition):
                key, value = message.key(), message.value()
                if key is None or value is None:
                    continue
                name = TransactionLogKey.decode(key, 0, _VERSION_BYTES)[0].transactional_id
                version = int.from_bytes(value[:_VERSION_BYTES], "big")
                transaction = TransactionLogValue.decode(value, version, _VERSION_BYTES)[0]
                if transaction.transaction_status == _ONGOING:
                    found.setdefault(name, set()).add(transaction.client_transaction_version)
    finally:
        consumer.close()
    return found
