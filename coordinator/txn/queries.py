"""DescribeTransactions (v0) and ListTransactions (v0 to v2): reading transactional ids without a change.

ListTransactions v1 filters by duration (KIP-994), v2 by a pattern (KIP-1152). Kafka: TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from gregor.coordinator.txn.partitions import NO_PARTITIONS
from gregor.coordinator.txn.shard_state import ShardState
from gregor.coordinator.txn.states import TransactionState
from gregor.coordinator.txn.transaction import Transaction
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse

_Described = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState

MAX_PATTERN_CHARACTERS = 1_000
PATTERN_BYTES = 256 * 1024
"""The memory of one compiled pattern. Larger ones are refused; they would need long for each transactional id, too."""
STATE_NAMES = frozenset(state.value for state in TransactionState)


class Filters:
    """The filters of one ListTransactions request, of which a transactional id must pass all."""

    def __init__(self, request: ListTransactionsRequest) -> None:
        """Raises KafkaError for a pattern that is no regular expression."""
        self._states = frozenset(request.state_filters)
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self.unknown_states = sorted(self._states - STATE_NAMES)
        self._matches = _matcher(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def admit(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        """Return whether a transactional id is listed."""
        if self._states and transaction.state not in self._states:
            return False
        if self._producer_ids and transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms >= 0 and now_ms - transaction.start_ms <= self._duration_ms:
            return False
        return self._matches is None or self._matches(transactional_id) is not None


def _matcher(pattern: str) -> Callable[[str], object]:
    """Compile a pattern with RE2, as Apache Kafka does: its time is linear in the text. Raises KafkaError
    INVALID_REGULAR_EXPRESSION."""
    import re2  # few clients send a pattern: others pay neither its memory nor its time to load

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARACTERS} are allowed",
        )
    try:
        matches: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        text = f"{pattern!r} is not a regular expression of RE2: {reason}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error
    return matches


class Queries:
    """Reads the state of one shard."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def describe(self, transactional_id: str) -> _Described:
        """Describe one transactional id. While its markers are written, its partitions are those without one yet, as
        Apache Kafka removes each that has its marker."""
        transaction = self._state.transactions.get(transactional_id)
        if transaction is None:
            return refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        markers = self._state.markers.get(transactional_id)
        left = transaction.partitions if markers is None else NO_PARTITIONS.union(markers.outstanding)
        return _Described(
            transactional_id=transactional_id,
            transaction_state=transaction.state.value,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                DescribeTransactionsResponse.TopicData(topic=topic, partitions=numbers)
                for topic, numbers in left.by_topic()
            ],
        )

    def transactional_ids(self) -> Sequence[str]:
        return list(self._state.transactions)

    def list(self, transactional_ids: Iterable[str], filters: Filters, now_ms: int) -> Iterator[_Listed]:
        """List those that still exist and pass the filters."""
        for transactional_id in transactional_ids:
            transaction = self._state.transactions.get(transactional_id)
            if transaction is not None and filters.admit(transactional_id, transaction, now_ms):
                yield _Listed(
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.value,
                )


def refused(transactional_id: str, error: ErrorCode) -> _Described:
    """Return the description of a transactional id about which nothing is known: its numbers are 0.

    Kafka: TransactionCoordinator.handleDescribeTransactions.
    """
    return _Described(transactional_id=transactional_id, error_code=error)
