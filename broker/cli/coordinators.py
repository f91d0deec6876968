"""The coordinators of groups and of transactional ids, as the commands find them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from enum import IntEnum
from typing import TypeVar

from confluent_kafka import KafkaException

from gregor.broker.cli.errors import kafka_error
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

MANY_COORDINATORS_FROM = 4
"""From this version on, FindCoordinator has a list of keys."""

READY_TIMEOUT_S = 60.0
"""As default.api.timeout.ms of Kafka's admin client."""
PAUSE_S = 0.1

MOVING = frozenset(
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
)
"""The errors while a coordinator is elected and reads its state."""


class KeyType(IntEnum):
    """The kind of a key in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


def coordinator_of(client: WireClient, key: str, key_type: KeyType = KeyType.GROUP) -> int:
    """Return the coordinator of a group or transactional id; raise BrokerRefusal if there is none."""
    if client.version(FindCoordinatorRequest) < MANY_COORDINATORS_FROM:
        answer: FindCoordinatorResponse = client.send(FindCoordinatorRequest(key=key, key_type=key_type))
        check_code(answer.error_code, answer.error_message)
        return answer.node_id
    (found,) = client.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])).coordinators
    check_code(found.error_code, found.error_message)
    return int(found.node_id)


def when_ready(
    attempt: Callable[[], T], not_ready: Collection[ErrorCode] = MOVING, timeout_s: float = READY_TIMEOUT_S
) -> T:
    """Return the result of an attempt, which is repeated while it raises a BrokerRefusal or KafkaException of these
    codes, until the time has passed."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return attempt()
        except (BrokerRefusal, KafkaException) as problem:
            if _code_of(problem) not in not_ready or time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_S)


def _code_of(problem: BrokerRefusal | KafkaException) -> int | None:
    if isinstance(problem, BrokerRefusal):
        return problem.code
    error = kafka_error(problem)
    return None if error is None else error.code()
