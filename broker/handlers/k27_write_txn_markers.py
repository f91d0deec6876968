"""WriteTxnMarkers (key 27), versions 0 to 2: ends transactions in the partitions that this broker leads.

Sent by transaction coordinators, and by tools to abort a transaction that has none any more (KIP-664); hence a single
broker serves it, too. The response follows once every in-sync replica has the markers; a partition that is not after
request.timeout.ms gets REQUEST_TIMED_OUT, though its marker stays in the log, and a coordinator sends it again.

- 1 flexible; 2 the version of the transaction's protocol, which decides which epoch of the producer ends it (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.deferred import Deferred, outcome_of
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from gregor.protocol.records.control import EndTransaction

if TYPE_CHECKING:
    from gregor.broker.context import Call, TransactionContext

_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


@handles(ApiKey.WRITE_TXN_MARKERS, 0, 2, changes=True)
async def write_txn_markers(
    broker: TransactionContext, request: WriteTxnMarkersRequest, call: Call
) -> WriteTxnMarkersResponse:
    writes = _Writes()
    turns = broker.gate.turns()
    for wanted in request.markers:
        await turns.next()
        marker = EndTransaction(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.coordinator_epoch,
            wanted.transaction_result,
            wanted.transaction_version,
        )
        for topic in wanted.topics:
            await turns.next()
            for index in topic.partition_indexes:
                await turns.next()
                broker.local_markers.write(marker, topic.name, index, partial(writes.written, writes.begin()))
    errors = iter(await writes.all_written(broker))
    markers = []
    for wanted in request.markers:
        await turns.next()
        topics = []
        for topic in wanted.topics:
            await turns.next()
            results = []
            for index in topic.partition_indexes:
                await turns.next()
                results.append(_Result(partition_index=index, error_code=next(errors)))
            topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
        markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=wanted.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=markers)


class _Writes:
    """The markers of one request, by number, and which of them are not written yet."""

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._errors: list[ErrorCode] = []
        self._all_begun = False
        self._done: Deferred[None] = Deferred()

    def begin(self) -> int:
        """Return the number of one more marker; its error is REQUEST_TIMED_OUT until it is written."""
        number = len(self._errors)
        self._errors.append(ErrorCode.REQUEST_TIMED_OUT)
        self._waiting.add(number)
        return number

    def written(self, number: int, error: ErrorCode) -> None:
        if not self._done.done and number in self._waiting:
            self._waiting.discard(number)
            self._errors[number] = error
            if self._all_begun and not self._waiting:
                self._done.complete(None)

    async def all_written(self, broker: TransactionContext) -> list[ErrorCode]:
        """Return the errors of all markers once none is left, or the time is over."""
        self._all_begun = True
        if not self._waiting:
            return self._errors
        timer = broker.loop.call_later(broker.config["request.timeout.ms"] / 1000, self._done.complete, None)
        try:
            await outcome_of(self._done, broker.loop.create_future())
        finally:
            timer.cancel()
        return self._errors
