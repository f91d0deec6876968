"""Errors of the log as a coordinator's clients expect them."""

import pytest

from gregor.coordinator.result import coordinator_error
from gregor.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("of_the_log", "of_the_coordinator"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_errors_of_the_log_are_translated(of_the_log: ErrorCode, of_the_coordinator: ErrorCode) -> None:
    assert coordinator_error(of_the_log) is of_the_coordinator
