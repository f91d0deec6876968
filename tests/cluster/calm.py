"""A topic that a client writes and reads before anything breaks: it and the brokers count the same, to the byte."""

from __future__ import annotations

import functools
from typing import NamedTuple

from gregor.protocol.messages import FetchRequest, ProduceRequest
from gregor.protocol.records.batch import build_batch, iter_batches
from gregor.protocol.sync_client import SyncConnection
from tests.cluster.cluster import ASK_TIMEOUT_S, START_TIMEOUT_S, Cluster, ask_metadata, connected
from tests.cluster.scrapes import Counters, metrics_of
from tests.cluster.servers import Broker

TOPIC = "calm"
PARTITIONS = 6
BATCH_RECORDS = (1, 2, 50, 7)
"""The batches that each partition gets."""
MAX_FETCH_BYTES = 1_048_576
PRODUCE_VERSION, FETCH_VERSION = 7, 11
ALL = -1


class Counts(NamedTuple):
    """Records and bytes of batches that a client has sent to one broker, and fetched from it."""

    records: int = 0
    sent_bytes: int = 0
    fetched_bytes: int = 0

    def series(self) -> Counters:
        """Return the counters in which a broker shows them."""
        named = {"messagesin": self.records, "bytesin": self.sent_bytes, "bytesout": self.fetched_bytes}
        return {
            f'kafka_server_brokertopicmetrics_{name}_total{{topic="{TOPIC}"}}': float(value)
            for name, value in named.items()
        }


def calm_time(cluster: Cluster) -> list[str]:
    """Create the topic, write and read all of it, and return what a broker whose counters are read counts otherwise."""
    cluster.create_topic(TOPIC, PARTITIONS, ())
    found = []
    for broker in cluster.brokers:
        knows = functools.partial(_knows_all_leaders, broker)
        cluster.wait_until(knows, START_TIMEOUT_S, f"{broker.name} knows all leaders")
        with connected(broker) as connection:
            counts = _written_and_read(connection, _led_by(broker))
        if broker.is_watched:
            found += different(broker.name, counts, metrics_of(broker))
    return found


def different(name: str, counts: Counts, counters: Counters) -> list[str]:
    """Return a violation for each number that a broker does not count exactly as its client."""
    return [
        f"without faults {name} counted {counters.get(series, 0.0):.0f} in {series}, its client {expected:.0f}"
        for series, expected in counts.series().items()
        if counters.get(series, 0.0) != expected
    ]


def _leaders_known_to(broker: Broker) -> dict[int, int]:
    """Return the leader of each partition, in this broker's metadata; without those that have none."""
    return {
        part.partition_index: part.leader_id
        for topic in ask_metadata(broker).topics
        for part in topic.partitions
        if topic.name == TOPIC and part.leader_id >= 0
    }


def _knows_all_leaders(broker: Broker) -> bool:
    return len(_leaders_known_to(broker)) == PARTITIONS


def _led_by(broker: Broker) -> list[int]:
    return [partition for partition, leader in _leaders_known_to(broker).items() if leader == broker.number]


def _written_and_read(connection: SyncConnection, partitions: list[int]) -> Counts:
    counts = Counts()
    for partition in partitions:
        for records in BATCH_RECORDS:
            batch = build_batch([(None, b"%d" % number) for number in range(records)], timestamp_ms=0)
            _write(connection, partition, batch)
            counts = counts._replace(records=counts.records + records, sent_bytes=counts.sent_bytes + len(batch))
        counts = counts._replace(fetched_bytes=counts.fetched_bytes + _read_bytes(connection, partition))
    return counts


def _write(connection: SyncConnection, partition: int, batch: bytearray) -> None:
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    request = ProduceRequest(acks=ALL, timeout_ms=round(ASK_TIMEOUT_S * 1000), topic_data=[topic])
    [answer] = connection.exchange(request, PRODUCE_VERSION).responses
    code = answer.partition_responses[0].error_code
    assert code == 0, f"{TOPIC}-{partition}: error {code} without a fault"


def _read_bytes(connection: SyncConnection, partition: int) -> int:
    """Return the bytes of all fetches, from the first record to the last."""
    offset, fetched_bytes = 0, 0
    while offset < sum(BATCH_RECORDS):
        wanted = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=MAX_FETCH_BYTES
        )
        topic = FetchRequest.FetchTopic(topic=TOPIC, partitions=[wanted])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=MAX_FETCH_BYTES, topics=[topic])
        [answer] = connection.exchange(request, FETCH_VERSION).responses
        part = answer.partitions[0]
        assert part.error_code == 0, f"{TOPIC}-{partition}: error {part.error_code} without a fault"
        records = bytes(part.records or b"")
        fetched_bytes += len(records)
        offset = max((batch.next_offset for batch in iter_batches(records)), default=offset)
    return fetched_bytes
