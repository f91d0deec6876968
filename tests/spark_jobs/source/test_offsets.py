"""gregor.spark_jobs.source.offsets: positions as JSON, with the ids of topics."""

from __future__ import annotations

import json

import pytest

from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.offsets import StreamOffset

ONE, OTHER = bytes(range(16)), bytes(range(1, 17))
T0, T10, U0 = TopicPartition("t", 0), TopicPartition("t", 10), TopicPartition("u", 0)


def test_a_position_survives_json_and_its_text_is_the_same_for_equal_ones() -> None:
    position = StreamOffset({U0: 2**40, T10: 1, T0: 0}, {"u": ZERO_UUID, "t": ONE})
    text = json.dumps(position.to_json())
    assert text == '{"#topicIds": {"t": "AAECAwQFBgcICQoLDA0ODw"}, "t": {"0": 0, "10": 1}, "u": {"0": 1099511627776}}'
    again = StreamOffset.from_json(json.loads(text))
    assert again.offsets == position.offsets
    assert (again.id_of("t"), again.id_of("u")) == (ONE, ZERO_UUID)
    other_order = StreamOffset({T0: 0, T10: 1, U0: 2**40}, {"t": ONE})
    assert json.dumps(other_order.to_json()) == text


def test_a_position_of_the_official_connector_has_no_ids() -> None:
    position = StreamOffset.from_json({"t": {"0": 3}})
    assert position == StreamOffset({T0: 3})
    assert position.to_json() == {"t": {"0": 3}}


@pytest.mark.parametrize(
    "value", [{"t": 3}, {"t": {"x": 3}}, {"t": {"0": "3"}}, {"#topicIds": {"t": "short"}, "t": {"0": 3}}]
)
def test_another_form_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(JobError, match="not one of this source; give the query a checkpoint of its own"):
        StreamOffset.from_json(value)


def test_an_end_is_reached_partition_by_partition() -> None:
    end = StreamOffset({T0: 5, U0: 3}, {"t": ONE})
    assert not end.is_reached_by(StreamOffset({T0: 5}, {"t": ONE}))
    assert not end.is_reached_by(StreamOffset({T0: 4, U0: 9}, {"t": ONE}))
    assert end.is_reached_by(StreamOffset({T0: 5, U0: 3, T10: 0}, {"t": ONE}))
    assert end.is_reached_by(StreamOffset({T0: 0, U0: 3}, {"t": OTHER}))


def test_an_end_is_no_step_back() -> None:
    start = StreamOffset({T0: 5, T10: 1}, {"t": ONE})
    assert StreamOffset({T0: 4, U0: 2}, {"t": ONE}).not_before(start).offsets == {T0: 5, T10: 1, U0: 2}
    assert StreamOffset({T0: 4}, {"t": OTHER}).not_before(start) == StreamOffset({T0: 4}, {"t": OTHER})


def test_a_topic_is_recreated_if_both_ids_are_known_and_differ() -> None:
    start = StreamOffset({T0: 1, U0: 1}, {"t": ONE})
    assert start.recreated(StreamOffset({}, {"t": OTHER, "u": ONE})) == {"t"}
    assert start.recreated(StreamOffset({}, {"t": ONE})) == set()
    assert start.recreated(StreamOffset({}, {})) == set()
    assert StreamOffset({T0: 1}).recreated(start) == set()
