"""Topics for the tests of histories, and the values of the records that rebalances become."""

from collections.abc import Iterable

from gregor.coordinator.history.rebalance import Rebalance
from gregor.coordinator.history.summary import Summaries
from gregor.protocol.ids import Uuid
from gregor.protocol.messages import RebalanceValue
from gregor.protocol.turns import run_all


class Topics:
    """Implements TopicFacts: partitions per topic, and when topics were created."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.created: dict[str, int] = {}

    def partition_count(self, topic: str) -> int:
        return self.counts.get(topic, 0)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name in self.counts if topic_id == id_of(name)), None)

    def created_ms(self, topic: str) -> int | None:
        return self.created.get(topic)


def id_of(topic: str) -> Uuid:
    """The id of a topic in these tests."""
    return topic.encode().rjust(16, b"\0")


def values_of(rebalances: Iterable[Rebalance], topics: Topics | None = None) -> list[RebalanceValue]:
    """The values of the records."""
    summaries = Summaries(1, topics or Topics())
    return [run_all(summaries.value_of(rebalance)) for rebalance in rebalances]
