"""`gregor groups --history`: the records of a group, in a table, in full and as JSON, with the gaps between them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.command import main
from gregor.broker.cli.groups.history import (
    COLUMNS,
    OTHER_COORDINATOR,
    Gap,
    details,
    read_history,
    row,
    to_json,
    with_gaps,
)
from gregor.broker.cli.wire import BrokerRefusal
from gregor.coordinator.history.records import KEPT, encode, tombstone_keys
from gregor.coordinator.partitioner import partition_of
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    RebalanceValue,
)
from gregor.protocol.records.batch import build_batch
from gregor.protocol.topic_names import REBALANCES_TOPIC
from tests.broker.cli.fake_client import FakeClient, metadata

PARTITIONS = 3
LEADER = 2


def value(
    epoch: int, *, not_recorded: int = 0, began_ms: int | None = None, outcome: str = "assigned"
) -> RebalanceValue:
    cause = RebalanceValue.Cause(
        trigger="member left", at_ms=5, member_id="m-1", client_id="c", client_host="/10.0.0.1", reason="bye"
    )
    began_ms = epoch * 1_000 if began_ms is None else began_ms
    return RebalanceValue(
        group_type="classic",
        epoch=epoch,
        outcome=outcome,
        protocol="range",
        coordinator_id=1,
        began_ms=began_ms,
        joined_ms=began_ms + 30,
        ended_ms=began_ms + 40,
        not_recorded=not_recorded,
        causes=[cause],
        causes_count=3,
        members_count=1,
        members=[
            RebalanceValue.Member(
                member_id="m-2", client_id="c", client_host="/10.0.0.2", waited_ms=30, joined=True, partitions=2
            ),
            RebalanceValue.Member(member_id="m-1", client_id="c", client_host="/10.0.0.1", waited_ms=0, joined=False),
        ],
        partitions=2,
        moved=1,
        without_owner=1,
        without_owner_ms=40,
        moves=[RebalanceValue.Move(topic="t", from_member="m-1", to_member=None, partitions=[1])],
    )


class Broker:
    """The leader of the group's partition, whose batches have `batch_size` records."""

    def __init__(
        self, records: Sequence[tuple[bytes, bytes | None]], start_offset: int = 0, batch_size: int = 2
    ) -> None:
        self.batches = [
            (
                start_offset + first,
                bytes(build_batch(records[first : first + batch_size], base_offset=start_offset + first)),
            )
            for first in range(0, len(records), batch_size)
        ]
        self.start_offset = start_offset
        self.end_offset = start_offset + len(records)
        self.error = ErrorCode.NONE
        self.throttled = 0
        """The fetches that a quota leaves without records."""
        self.offsets: list[int] = []
        self.client = FakeClient(
            {MetadataRequest: self._metadata, ListOffsetsRequest: self._start, FetchRequest: self._fetch}
        )

    def _metadata(self, request: MetadataRequest, _node: int | None) -> MetadataResponse:
        assert not request.allow_auto_topic_creation
        return metadata({REBALANCES_TOPIC: [LEADER] * PARTITIONS})

    def _start(self, request: ListOffsetsRequest, node: int | None) -> ListOffsetsResponse:
        assert (node, request.topics[0].partitions[0].timestamp) == (LEADER, -2)
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=self.start_offset)
        topic = ListOffsetsResponse.ListOffsetsTopicResponse(partitions=[found])
        return ListOffsetsResponse(topics=[topic])

    def _fetch(self, request: FetchRequest, node: int | None) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        assert (node, wanted.partition) == (LEADER, partition_of("g", PARTITIONS))
        offset = wanted.fetch_offset
        if self.throttled:
            self.throttled -= 1
            return FetchResponse(throttle_time_ms=500)
        self.offsets.append(offset)
        data = FetchResponse.PartitionData(
            error_code=self.error, high_watermark=self.end_offset, log_start_offset=self.start_offset
        )
        data.records = next((batch for first, batch in reversed(self.batches) if first <= offset), b"")
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[data])])


def epochs(broker: Broker) -> list[int]:
    return [one.epoch for one in read_history(broker.client, "g")]


def test_newest_record_of_each_slot_of_the_group() -> None:
    records = [encode("g", value(epoch)) for epoch in (1, 2, 3, KEPT + 1)]
    records += [encode("other", value(9)), (b"\x00\x07", b""), (b"", b"")]
    assert epochs(Broker(records)) == [2, 3, KEPT + 1]


def test_history_that_was_removed() -> None:
    removed: list[tuple[bytes, bytes | None]] = [(key, None) for key in tombstone_keys("g", 2)]
    before = [encode("g", value(epoch)) for epoch in (1, 2)]
    assert epochs(Broker([*before, *removed, encode("g", value(1))])) == [1]


def test_log_that_does_not_start_at_zero() -> None:
    broker = Broker([encode("g", value(epoch)) for epoch in (1, 2, 3)], start_offset=10)
    assert epochs(broker) == [1, 2, 3]
    assert broker.offsets == [10, 12]


def test_fetch_that_a_quota_leaves_without_records_is_repeated() -> None:
    broker = Broker([encode("g", value(epoch)) for epoch in (1, 2, 3)])
    broker.throttled = 2
    assert epochs(broker) == [1, 2, 3]


def test_refusal_of_the_leader() -> None:
    broker = Broker([encode("g", value(1))])
    broker.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerRefusal, match="TOPIC_AUTHORIZATION_FAILED"):
        read_history(broker.client, "g")


def test_partition_without_leader() -> None:
    client = FakeClient({MetadataRequest: lambda _request, _node: metadata({REBALANCES_TOPIC: [-1]})})
    with pytest.raises(CommandError, match="no leader"):
        read_history(client, "g")


def test_cluster_without_history() -> None:
    missing = MetadataResponse.MetadataResponseTopic(
        name=REBALANCES_TOPIC, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    client = FakeClient({MetadataRequest: lambda _request, _node: MetadataResponse(topics=[missing])})
    assert read_history(client, "g") == []


def test_gaps_are_shown_with_their_cause() -> None:
    entries = with_gaps([value(3), value(4), value(9, not_recorded=4), value(12, not_recorded=1)])
    assert [one if isinstance(one, Gap) else one.epoch for one in entries] == [
        Gap(1, 2, OTHER_COORDINATOR),
        3,
        4,
        Gap(5, 8, "not recorded: too many rebalances within a short time"),
        9,
        Gap(
            10,
            11,
            f"{OTHER_COORDINATOR}; 1 of them came within a short time",
        ),
        12,
    ]


def test_records_that_were_compacted_away_are_no_gap() -> None:
    entries = with_gaps([value(epoch) for epoch in range(100, 100 + KEPT)])
    assert len(entries) == KEPT


def test_consumer_group_begins_in_epoch_1_without_a_rebalance() -> None:
    first = value(2)
    first.group_type = "consumer"
    assert with_gaps([first]) == [first]


def test_group_that_was_created_anew_begins_again() -> None:
    entries = with_gaps([value(7, began_ms=1), value(1, began_ms=2), value(2, began_ms=3)])
    assert [one if isinstance(one, Gap) else one.epoch for one in entries][1:] == [7, 1, 2]


def test_row_of_the_table() -> None:
    assert len(COLUMNS) == len(row(value(2))) == len(row(Gap(1, 2, "why")))
    assert row(value(2, outcome="superseded")) == [
        *(2, "1970-01-01T00:00:02.000", 40, 1, 1, 40, "member left", "m-1", "c", "/10.0.0.1"),
        "superseded; client reason: bye; more causes: 2",
    ]
    assert row(Gap(1, 2, "why")) == ["1-2", *["-"] * 9, "why"]
    assert row(Gap(1, 1, "why"))[0] == "1"


def test_details() -> None:
    assert list(details(value(2))) == [
        "2  1970-01-01T00:00:02.000  assigned after 40 ms, members: 1, range, coordinator 1",
        "  cause: 1970-01-01T00:00:00.005 member left: 'm-1' (client 'c' at 10.0.0.1), client reason 'bye'",
        "  more causes: 2",
        "  the members had joined after 30 ms",
        "  'm-2' (client 'c' at 10.0.0.2) joined after 30 ms, partitions: 2",
        "  'm-1' (client 'c' at 10.0.0.1) was removed after 0 ms",
        "  partitions: 2, moved 1, added 0, removed 0",
        "    t:1 from m-1 to no member",
        "  partitions without owner: 1, for up to 40 ms",
    ]
    assert list(details(Gap(1, 2, "why"))) == ["1-2  why"]


def test_json_has_all_fields() -> None:
    shown = json.loads(json.dumps(to_json(value(2))))
    assert shown["causes"][0]["reason"] == "bye"
    assert shown["members"][0]["waited_ms"] == 30
    assert shown["moves"] == [{"topic": "t", "from_member": "m-1", "to_member": None, "partitions": [1]}]
    assert {"epoch", "outcome", "without_owner_ms", "coordinator_id"} <= shown.keys()
    assert to_json(Gap(1, 2, "why")) == {"gap": {"first": 1, "last": 2, "why": "why"}}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--history", "g", "--group", "g"],
        ["--history", "g", "--list"],
        ["--history", "g", "--all-groups"],
        ["--list", "--json"],
    ],
)
def test_flags_that_contradict_each_other(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--bootstrap-server", "localhost:1"]) != 0
    assert "cannot connect" not in capsys.readouterr().err
