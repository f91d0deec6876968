"""Records, bytes and requests by topic: Kafka's BrokerTopicMetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.metrics.family import COUNTER, Family, label_text
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.replication.traffic import Traffic

_PREFIX = "kafka_server_brokertopicmetrics_"
_OF_TOPICS = {
    "messages_in": ("messagesin", "Records appended as the leader"),
    "bytes_in": ("bytesin", "Bytes of record batches appended as the leader"),
    "bytes_out": ("bytesout", "Bytes of record batches sent to consumers"),
    "produce_requests": ("totalproducerequests", "Appends as the leader, one for each partition of a request"),
    "failed_produce_requests": ("failedproducerequests", "Refused appends, without those that clients repeat anyway"),
    "fetch_requests": ("totalfetchrequests", "Reads for consumers, one for each partition of a request"),
    "failed_fetch_requests": ("failedfetchrequests", "Failed reads, without those after which clients proceed"),
}
_OF_BROKER = {
    "replication_bytes_in": ("replicationbytesin", "Bytes of record batches fetched from the leaders"),
    "replication_bytes_out": ("replicationbytesout", "Bytes of record batches sent to followers"),
}
_BOTH = "per topic, and without the label the sum over all topics since the start, also of deleted ones"

FAMILIES = (
    *(Family(f"{_PREFIX}{name}_total", COUNTER, ("topic",), f"{text}: {_BOTH}.") for name, text in _OF_TOPICS.values()),
    *(Family(f"{_PREFIX}{name}_total", COUNTER, (), f"{text}.") for name, text in _OF_BROKER.values()),
)


def collect_traffic(page: Page, traffic: Traffic) -> Steps[None]:
    """Add the counters of each topic, and their sums."""
    total = traffic.total()
    for field, (name, _) in (_OF_TOPICS | _OF_BROKER).items():
        page.add(f"{_PREFIX}{name}_total", getattr(total, field))
    for count, (topic, counters) in enumerate(list(traffic.topics.items()), 1):
        labels = label_text(topic=topic)
        for field, (name, _) in _OF_TOPICS.items():
            page.add(f"{_PREFIX}{name}_total", getattr(counters, field), labels)
        if not count % ITEMS_PER_STEP:
            yield None
    yield None
