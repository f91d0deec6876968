"""The four incremental operations."""

from __future__ import annotations

import time

import pytest

from gregor.config.tables.topic_keys import TOPIC_KEYS
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.config_changes import ConfigChange, ConfigOperation, changed

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.mark.parametrize(
    ("current", "change", "expected"),
    [
        ({}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, ("retention.ms", DELETE, None), {}),
        ({}, ("retention.ms", DELETE, None), {}),
        # not set: from the default, which is "delete"
        ({}, ("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({}, ("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "delete"), {"cleanup.policy": "compact,delete"}),
        ({"cleanup.policy": "a, b"}, ("cleanup.policy", APPEND, "b,c , c"), {"cleanup.policy": "a,b,c"}),
        ({"cleanup.policy": "a,b,c"}, ("cleanup.policy", SUBTRACT, "c, a,x"), {"cleanup.policy": "b"}),
    ],
)
def test_operations(
    current: dict[str, str], change: tuple[str, ConfigOperation, str | None], expected: dict[str, str]
) -> None:
    before = dict(current)
    assert changed(current, [ConfigChange(*change)], TOPIC_KEYS) == expected
    assert current == before


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([("retention.ms", -1, "1")], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("nonsense", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_refusals(changes: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as error:
        changed({}, [ConfigChange(*change) for change in changes], TOPIC_KEYS)
    assert error.value.code is code


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_long_lists_cost_a_step_for_each_element(operation: ConfigOperation) -> None:
    key = "leader.replication.throttled.replicas"
    before, given = (",".join(f"{partition}:{broker}" for partition in range(5000)) for broker in (1, 2))
    begin_s = time.process_time()
    after = changed({key: before}, [ConfigChange(key, operation, given)], TOPIC_KEYS)[key]
    assert time.process_time() - begin_s < 0.1
    assert after == (f"{before},{given}" if operation == APPEND else before)
