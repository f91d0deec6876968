"""Answers that are put together from pieces, compared with the output of the general encoder."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gregor.broker.answers.metadata import EncodedTopics, encoded_answer, layout
from gregor.protocol.messages import MetadataResponse
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import PartitionState, TopicState

VERSIONS = range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1)
Topic = MetadataResponse.MetadataResponseTopic


def topic(name: str, partitions: int) -> TopicState:
    states = {index: PartitionState(index % 3, 7, [1, 2], [1, 2, 300], [300]) for index in range(partitions)}
    return TopicState(name, name.encode().ljust(16, b"\x00"), states)


def answered(state: TopicState, indexes: Iterable[int]) -> Topic:
    return Topic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.name.startswith("_"),
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                partition_index=index,
                leader_id=state.partitions[index].leader,
                replica_nodes=state.partitions[index].replicas,
                isr_nodes=state.partitions[index].isr,
            )
            for index in indexes
        ],
    )


def around(version: int) -> MetadataResponse:
    broker = MetadataResponse.MetadataResponseBroker(node_id=5, host="a-host", port=9092, rack="r")
    return MetadataResponse(brokers=[broker], cluster_id="some cluster", controller_id=5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "sizes", [[], [1], [0], [60, 61, 59], [127, 128, 129], [5000], [3] * 200, [1] * 126 + [400]], ids=len
)
def test_pieces_make_what_the_encoder_makes(version: int, sizes: list[int]) -> None:
    states = [topic(f"topic-{number}" * (1 + number % 20), size) for number, size in enumerate(sizes)]
    error = Topic(error_code=3, name="nobody's")
    response = around(version)
    response.topics = [answered(state, state.partitions) for state in states] + [error]
    plain = bytes(response.encode(version))

    kept = EncodedTopics()
    for _ in range(2):  # the second time from the cache
        data = run_all(kept.collect([*states, error], answered, version, "kind", len(states)))
        assert b"".join(encoded_answer(around(version), data, len(states) + 1, version).parts) == plain


def test_the_layout_is_that_of_an_empty_answer() -> None:
    for version in VERSIONS:
        found = layout(version)
        assert found.topics_at + found.length_bytes + found.after_topics == len(MetadataResponse().encode(version))


class Asked:
    """Counts the answers that are encoded anew."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, state: TopicState, indexes: Iterable[int]) -> Topic:
        self.names.append(state.name)
        return answered(state, indexes)


def test_a_topic_is_encoded_again_when_it_was_replaced() -> None:
    kept, asked = EncodedTopics(), Asked()
    states = [topic("a", 1), topic("b", 2)]
    for version in (9, 12, 9, 12):
        run_all(kept.collect(states, asked, version, None, 2))
    assert asked.names == ["a", "b", "a", "b"]
    states[1] = topic("b", 3)
    run_all(kept.collect(states, asked, 9, None, 2))
    run_all(kept.collect(states, asked, 9, "another kind", 2))
    assert asked.names[4:] == ["b", "a", "b"]


def test_what_is_gone_is_forgotten() -> None:
    kept = EncodedTopics()
    for number in range(1000):
        run_all(kept.collect([topic(f"t{number}", 1)], answered, 9, None, 1))
    assert 1 <= len(kept) <= 4
    for version in VERSIONS:
        run_all(kept.collect([topic("t", 1)], answered, version, None, 1))
    assert 1 <= len(kept) <= 4  # one of each kind


def test_slices_are_short() -> None:
    asked = Asked()
    work = EncodedTopics().collect([topic("big", 5000)], asked, 12, None, 1)
    assert sum(1 for _ in work) >= 5000 // 60
