"""A cluster of two brokers with producers and transactional ids, as the commands see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    MetadataRequest,
)
from gregor.protocol.topic_partition import TopicPartitionKey
from tests.broker.cli.fake_client import FakeClient, coordinator, metadata

COORDINATOR = 2
NOW_MS = 1_700_000_000_000


def producer(producer_id: int, start_offset: int = -1, **fields: int) -> DescribeProducersResponse.ProducerState:
    known = {"producer_epoch": 3, "last_sequence": 9, "last_timestamp": NOW_MS, "coordinator_epoch": 0, **fields}
    return DescribeProducersResponse.ProducerState(
        producer_id=producer_id, current_txn_start_offset=start_offset, **known
    )


def state(
    transactional_id: str, producer_id: int, partitions: Mapping[str, Sequence[int]], **fields: Any
) -> DescribeTransactionsResponse.TransactionState:
    known = {
        **{"transaction_state": "Ongoing", "producer_epoch": 3, "transaction_timeout_ms": 60_000},
        **{"transaction_start_time_ms": NOW_MS, **fields},
    }
    topics = [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=list(indexes))
        for topic, indexes in partitions.items()
    ]
    return DescribeTransactionsResponse.TransactionState(
        transactional_id=transactional_id, producer_id=producer_id, topics=topics, **known
    )


@dataclass
class Cluster:
    """Two brokers; all transactional ids are at the second."""

    leaders: Mapping[str, Sequence[int]]
    producers: dict[TopicPartitionKey, list[DescribeProducersResponse.ProducerState]] = field(default_factory=dict)
    transactions: dict[str, DescribeTransactionsResponse.TransactionState] = field(default_factory=dict)
    details: str | None = None
    """The detail text of each partition in descriptions of producers."""
    after_describe: Callable[[], None] = lambda: None
    """Called after each description of producers."""

    def client(self, more: Mapping[Any, Callable[[Any, int | None], Any]] | None = None, **versions: Any) -> FakeClient:
        answers = {
            MetadataRequest: self._metadata,
            DescribeProducersRequest: self._producers,
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: self._describe,
            FindCoordinatorRequest: lambda request, node_id: coordinator(COORDINATOR),
            **(more or {}),
        }
        return FakeClient(answers, **versions)

    def _metadata(self, request: Any, node_id: int | None) -> Any:
        wanted = None if request.topics is None else {topic.name for topic in request.topics}
        found = metadata({name: of for name, of in self.leaders.items() if wanted is None or name in wanted})
        for name in (wanted or set()) - self.leaders.keys():
            unknown = metadata({name: []}).topics[0]
            unknown.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.topics.append(unknown)
        return found

    def _producers(self, request: Any, node_id: int | None) -> DescribeProducersResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for index in topic.partition_indexes:
                states = self.producers.get((topic.name, index), [])
                part = DescribeProducersResponse.PartitionResponse(
                    partition_index=index, active_producers=states, error_message=self.details
                )
                parts.append(part)
            topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=parts))
        self.after_describe()
        return DescribeProducersResponse(topics=topics)

    def _list(self, request: Any, node_id: int | None) -> ListTransactionsResponse:
        found = [
            ListTransactionsResponse.TransactionState(
                transactional_id=name, producer_id=one.producer_id, transaction_state=one.transaction_state
            )
            for name, one in self.transactions.items()
            if node_id == COORDINATOR
            and (not request.producer_id_filters or one.producer_id in request.producer_id_filters)
        ]
        return ListTransactionsResponse(transaction_states=found)

    def _describe(self, request: Any, node_id: int | None) -> DescribeTransactionsResponse:
        assert node_id == COORDINATOR
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribeTransactionsResponse(
            transaction_states=[
                self.transactions.get(name, state(name, -1, {}, error_code=unknown))
                for name in request.transactional_ids
            ]
        )
