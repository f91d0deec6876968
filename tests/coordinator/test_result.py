"""Responses of operations, and errors of the log as a coordinator's clients expect them."""

import pytest

from gregor.coordinator.result import answered, coordinator_error
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode, KafkaError


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


@pytest.mark.parametrize("early", [True, False])
def test_an_operation_is_answered_with_its_response_or_its_refusal(early: bool) -> None:
    pending: tuple[Deferred[str], ...] = (Deferred(), Deferred(), Deferred())
    given = [] if early else [answered(one, lambda error: error.code.name) for one in pending]
    pending[0].complete("response")
    pending[1].fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    pending[2].fail(ValueError("a bug"))
    if early:
        given = [answered(one, lambda error: error.code.name) for one in pending]
    assert [one.value for one in given] == ["response", "NOT_COORDINATOR", None]
    assert isinstance(given[2].error, ValueError)


def test_an_answer_that_is_not_needed_cancels_the_operation() -> None:
    pending: Deferred[str] = Deferred()
    answered(pending, str).cancel()
    assert pending.cancelled
    # And the other way round, as when the shard is unloaded without an error for the client.
    pending = Deferred()
    answer = answered(pending, str)
    pending.cancel()
    assert answer.cancelled
