"""DescribeTransactions and ListTransactions."""

import pytest

from gregor.coordinator.txn.states import TransactionState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.topic_partition import TopicPartition
from tests.coordinator.txn.context import FIRST_PRODUCER_ID, TIMEOUT_MS, Context


def names(context: Context, **filters: object) -> set[str]:
    response = context.list(**filters)
    assert response.error_code == ErrorCode.NONE
    return {listed.transactional_id for listed in response.transaction_states}


def three(context: Context) -> None:
    """Three transactional ids: `a` is Empty, `b` Ongoing, `ab` CompleteCommit."""
    context.init("a")
    producer = context.init("b")
    context.add(*producer, 2, 1, transactional_id="b", version=5)
    producer = context.init("ab")
    context.add(*producer, 1, transactional_id="ab", version=5)
    context.end(*producer, transactional_id="ab")


def test_a_transaction_is_described() -> None:
    with Context() as context:
        three(context)
        described = context.describe("b")
        assert described.error_code == ErrorCode.NONE
        assert (described.transactional_id, described.transaction_state) == ("b", "Ongoing")
        assert (described.producer_id, described.producer_epoch) == (FIRST_PRODUCER_ID + 1, 0)
        assert described.transaction_timeout_ms == TIMEOUT_MS
        assert described.transaction_start_time_ms == context.transaction("b").start_ms
        assert [(topic.topic, topic.partitions) for topic in described.topics] == [("topic", [1, 2])]
        assert context.describe("a").transaction_start_time_ms == -1


def test_partitions_leave_the_description_with_their_markers() -> None:
    with Context() as context:
        producer = context.init()
        context.add(*producer, 1, 2, version=5)
        context.markers.hold()
        context.end(*producer)
        (sent,) = context.markers.sent
        for written, left in ((None, [1, 2]), (1, [2])):
            if written is not None:
                sent.written.is_written(TopicPartition("topic", written))
            described = context.describe()
            assert described.transaction_state == "PrepareCommit"
            assert [topic.partitions for topic in described.topics] == [left]
        context.write_markers()
        assert context.describe().transaction_state == "CompleteCommit"
        assert context.describe().topics == []


def test_what_cannot_be_described_has_an_error() -> None:
    """Its numbers are 0, those that Apache Kafka leaves unset."""
    with Context() as context:
        refused = [context.describe("x"), context.describe("")]
        context.resign()
        refused.append(context.describe("x"))
        context.coordinator.close()
        refused.append(context.describe("x"))
    assert [described.error_code for described in refused] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ]
    for described in refused:
        assert (described.transaction_state, described.topics) == ("", [])
        assert (described.producer_id, described.producer_epoch) == (0, 0)
        assert (described.transaction_timeout_ms, described.transaction_start_time_ms) == (0, 0)


def test_all_transactional_ids_are_listed() -> None:
    with Context(partition_count=3) as context:
        three(context)
        listed = {
            state.transactional_id: (state.producer_id, state.transaction_state)
            for state in context.list().transaction_states
        }
        assert listed == {
            "a": (FIRST_PRODUCER_ID, "Empty"),
            "b": (FIRST_PRODUCER_ID + 1, "Ongoing"),
            "ab": (FIRST_PRODUCER_ID + 2, "CompleteCommit"),
        }


def test_filters() -> None:
    with Context() as context:
        three(context)
        assert names(context, state_filters=["Ongoing", "Empty"]) == {"a", "b"}
        assert names(context, producer_id_filters=[FIRST_PRODUCER_ID + 2, 5]) == {"ab"}
        assert names(context, state_filters=["Ongoing"], producer_id_filters=[FIRST_PRODUCER_ID]) == set()
        assert names(context, transactional_id_pattern="a.*") == {"a", "ab"}
        assert names(context, transactional_id_pattern="b") == {"b"}
        assert names(context, transactional_id_pattern="") == {"a", "b", "ab"}
        assert names(context, state_filters=["PrepareEpochFence"]) == set()


def test_a_duration_is_that_since_the_begin_of_the_transaction() -> None:
    with Context() as context:
        three(context)
        context.sleep(5_000)
        assert names(context, duration_filter=4_000, state_filters=["Ongoing"]) == {"b"}
        assert names(context, duration_filter=6_000, state_filters=["Ongoing"]) == set()
        assert names(context, duration_filter=0, state_filters=["Ongoing"]) == {"b"}


def test_unknown_states_are_named() -> None:
    with Context() as context:
        three(context)
        response = context.list(state_filters=["Nonsense", "Ongoing", "ongoing"])
        assert response.unknown_state_filters == ["Nonsense", "ongoing"]
        assert [state.transactional_id for state in response.transaction_states] == ["b"]


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "*"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with Context() as context:
        assert context.list(transactional_id_pattern=pattern).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_broker_that_coordinates_nothing_lists_nothing() -> None:
    with Context(load=False) as context:
        assert names(context) == set()
        context.coordinator.close()
        assert context.list().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_names_of_states_are_those_of_filters() -> None:
    with Context() as context:
        assert context.list(state_filters=[state.value for state in TransactionState]).unknown_state_filters == []


def test_a_pattern_cannot_hold_the_event_loop_up() -> None:
    """One that backtracks needs 2 ** 40 steps; RE2 does not backtrack, and refuses patterns that need it."""
    transactional_id = "a" * 40 + "!"
    with Context() as context:
        context.init(transactional_id)
        assert names(context, transactional_id_pattern="(a|aa|a*)+") == set()
        assert names(context, transactional_id_pattern="((a|aa)+)+!") == {transactional_id}
        for pattern in ("(a)\\1", "((a{1,100}){1,100}){1,100}", "a" * 1001):
            assert context.list(transactional_id_pattern=pattern).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
