"""Answers that are owed."""

import pytest

from gregor.coordinator.result import Parked, coordinator_error
from gregor.protocol.errors import ErrorCode


def test_an_answer_reaches_who_asked_before_or_after() -> None:
    early, late = Parked(), Parked()
    heard: list[object] = []
    early.then(lambda parked: heard.append(parked.response))
    early.answer("one")
    late.answer("two")
    late.then(lambda parked: heard.append(parked.response))
    assert heard == ["one", "two"]


def test_the_first_outcome_counts() -> None:
    answered, failed = Parked(), Parked()
    answered.answer("yes")
    answered.fail(ErrorCode.NOT_COORDINATOR)
    failed.fail(ErrorCode.NOT_COORDINATOR)
    failed.answer("late")
    assert (answered.response, answered.error) == ("yes", ErrorCode.NONE)
    assert (failed.response, failed.error) == (None, ErrorCode.NOT_COORDINATOR)


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
