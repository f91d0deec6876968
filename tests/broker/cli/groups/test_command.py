"""`gregor groups` without a broker: its arguments, and the tables that it makes of a broker's answers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Node,
    TopicPartition,
)
from confluent_kafka.admin import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)

from gregor.broker.cli import coordinators
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups import command as groups
from gregor.broker.cli.groups import listing, offsets, views
from gregor.broker.cli.groups.listing import ANY, ListedGroup, list_broker, parse_states, parse_types
from gregor.broker.cli.groups.report import (
    Positions,
    ages_s,
    member_table,
    offset_table,
    partitions_text,
    state_table,
)
from gregor.broker.cli.groups.seconds_behind import NOTHING_UNREAD
from gregor.broker.cli.groups.views import GroupView, view_of, with_epochs
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ConsumerGroupDescribeResponse,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from tests.broker.cli.fake_client import FakeClient, coordinator, metadata

Described = ConsumerGroupDescribeResponse.DescribedGroup


def member(name: str, *places: tuple[str, int], instance: str | None = None) -> MemberDescription:
    assignment = MemberAssignment([TopicPartition(topic, partition) for topic, partition in places])
    return MemberDescription(f"{name}-id", name, "/127.0.0.1", assignment, instance)


def group(*members: MemberDescription, assignor: str = "range") -> GroupView:
    state = ConsumerGroupState.STABLE if members else ConsumerGroupState.EMPTY
    return view_of(ConsumerGroupDescription("g", False, list(members), assignor, state, Node(1, "host", 9092)))


def consumer_group(*types: int) -> GroupView:
    """A group of the consumer protocol with a member of each type, as its coordinator describes it."""

    def assigned(*partitions: int) -> ConsumerGroupDescribeResponse.Assignment:
        topic = ConsumerGroupDescribeResponse.TopicPartitions(
            topic_id=b"i" * 16, topic_name="t", partitions=list(partitions)
        )
        return ConsumerGroupDescribeResponse.Assignment(topic_partitions=[topic] if partitions else [])

    described = Described(
        group_id="g",
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=3,
        assignor_name="uniform",
        members=[
            ConsumerGroupDescribeResponse.Member(
                member_id=f"m{number}",
                member_epoch=2 + number,
                client_id="c",
                client_host="/127.0.0.1",
                assignment=assigned(1, 0) if number == 0 else assigned(),
                target_assignment=assigned(number),
                member_type=kind,
            )
            for number, kind in enumerate(types)
        ],
    )
    listed = ConsumerGroupDescription(
        "g", False, [], "", ConsumerGroupState.UNKNOWN, Node(1, "host", 9092), type=ConsumerGroupType.CONSUMER
    )
    return with_epochs(view_of(listed), described)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--group", "g"], "exactly one"),
        (["--describe"], "needs --group or --all-groups"),
        (["--describe", "--group", "g", "--all-groups"], "contradict"),
        (["--describe", "--group", "g", "--members", "--state"], "contradict"),
        (["--describe", "--group", "g", "--state", "stable"], "no value"),
        (["--list", "--group", "g"], "--list and --group contradict each other"),
        (["--list", "--members"], "need --describe"),
        (["--list", "--execute"], "need --reset-offsets"),
        (["--describe", "--group", "g", "--type", "classic"], "--type needs --list"),
        (["--delete", "--group", "g", "--topic", "t"], "goes with --reset-offsets"),
        (["--validate-regex", "a", "--list"], "exactly one"),
        (["--delete-offsets", "--group", "g"], "and --topic"),
        (["--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"], "one --group"),
        (["--delete-offsets", "--all-groups", "--topic", "t"], "one --group"),
        (["--delete-offsets", "--group", "g", "--topic", "t", "--execute"], "need --reset-offsets"),
        (["--reset-offsets", "--group", "g", "--topic", "t"], "exactly one of --to-earliest"),
        (["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--to-latest"], "exactly one of"),
        (["--reset-offsets", "--group", "g", "--to-earliest"], "needs --topic or --all-topics"),
        (["--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--dry-run", "--execute"], "contradict"),
        (["--reset-offsets", "--group", "g", "--all-topics", "--by-duration", "1h"], "PnDTnHnMnS"),
        (["--reset-offsets", "--group", "g", "--all-topics", "--to-datetime", "now"], "YYYY-MM-DD"),
        (["--list", "--timeout", "3600001"], "1<=x<=3600000"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert groups.main(arguments) == 1
    assert cause in capsys.readouterr().err


def test_filters() -> None:
    assert parse_states("Stable, empty,reconciling") == ["Stable", "Empty", "Reconciling"]
    assert parse_states(ANY) == parse_types(None) == []
    assert parse_types("classic,CONSUMER") == ["Classic", "Consumer"]
    for parse in (parse_states, parse_types):
        with pytest.raises(Exception, match="'odd' is not a"):
            parse("odd")


def test_listed_are_groups_of_consumers() -> None:
    listed = [("g", "consumer", "Assigning", "consumer"), ("s", "", "Empty", "classic"), ("c", "connect", "Stable", "")]
    response = ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(group_id=name, protocol_type=protocol, group_state=state, group_type=kind)
            for name, protocol, state, kind in listed
        ]
    )
    client = FakeClient({ListGroupsRequest: lambda _request, _broker: response})
    assert list_broker(client, 2, ["Assigning", "Empty"], ["Consumer"]) == [
        ListedGroup("g", "Consumer", "Assigning"),
        ListedGroup("s", "Classic", "Empty"),
    ]
    ((request, broker),) = client.sent
    assert (request, broker) == (
        ListGroupsRequest(states_filter=["Assigning", "Empty"], types_filter=["Consumer"]),
        2,
    )


def test_offsets_show_members_with_most_partitions_first_and_orphans_last() -> None:
    committed = {
        ("t", 0): TopicPartition("t", 0, 5, leader_epoch=3),
        ("t", 1): TopicPartition("t", 1, 7),
        ("u", 9): TopicPartition("u", 9, 1),
    }
    described = group(member("a", ("t", 0)), member("b", ("t", 2), ("t", 1)), member("idle"))
    ends = {("t", 0): 8, ("t", 1): 7, ("t", 2): 4}
    seconds = ages_s({("t", 0): 1_000, ("t", 1): NOTHING_UNREAD}, now_ms=2_500)
    columns, rows = offset_table(described, Positions(committed, ends, seconds), verbose=True)
    assert [column.name for column in columns][:7] == [
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    ]
    assert rows == [
        ["g", "t", 1, "-", 7, 7, 0, "b-id", "/127.0.0.1", "b", "0.000"],
        ["g", "t", 2, "-", "-", 4, "-", "b-id", "/127.0.0.1", "b", "-"],
        ["g", "t", 0, 3, 5, 8, 3, "a-id", "/127.0.0.1", "a", "1.500"],
        ["g", "u", 9, "-", 1, "-", "-", "-", "-", "-", "-"],
    ]
    plain, short_rows = offset_table(described, Positions(committed, {}, {}), verbose=False)
    assert len(plain) == len(columns) - 1 == len(short_rows[0])


def test_members_show_instance_ids_only_where_there_are_some() -> None:
    columns, rows = member_table(group(member("a", ("t", 0))), verbose=False)
    assert [column.name for column in columns] == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert rows == [["g", "a-id", "/127.0.0.1", "a", 1]]
    described = group(member("a", ("t", 1), ("t", 0), instance="i"), member("b"))
    columns, rows = member_table(described, verbose=True)
    assert columns[2].name == "GROUP-INSTANCE-ID"
    assert [row[2] for row in rows] == ["i", ""]
    assert [row[7] for row in rows] == ["t:0,1", "-"]


def test_state() -> None:
    columns, rows = state_table(group(member("a")), verbose=False)
    assert [column.name for column in columns][-1] == "#MEMBERS"
    assert rows == [["g", "host:9092  (1)", "range", "Stable", 1]]
    columns, rows = state_table(group(), verbose=True)
    assert len(columns) == len(rows[0]) == 7
    # A blank value would shift the columns for a script that splits the line.
    assert state_table(group(assignor=""), verbose=False)[1][0][2] == "-"


def test_consumer_groups_have_epochs_and_targets() -> None:
    described = consumer_group(1, 1)
    columns, rows = state_table(described, verbose=True)
    assert rows == [["g", "host:9092  (1)", "uniform", "Reconciling", 4, 3, 2]]
    columns, rows = member_table(described, verbose=True)
    assert [column.name for column in columns][5:] == [
        *("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ]
    assert [row[4:] for row in rows] == [[2, 2, "t:0,1", 3, "t:0"], [0, 3, "-", 3, "t:1"]]


class Admin:
    """An admin client of confluent-kafka, as the only way to brokers without a PLAINTEXT listener."""

    def __init__(self, *described: ConsumerGroupDescription) -> None:
        self.described = described

    def describe_consumer_groups(self, names: list[str], **_options: Any) -> dict[str, Any]:
        return {one.group_id: done(one) for one in self.described if one.group_id in names}

    def list_consumer_groups(self, **_options: Any) -> Any:
        make = ConsumerGroupListing
        return done(
            ListConsumerGroupsResult(
                valid=[make(one.group_id, False, one.state, one.type) for one in self.described], errors=[]
            )
        )


def test_a_broker_that_does_not_answer_is_an_error_with_a_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Admin):
        def list_consumer_groups(self, **_options: Any) -> Any:
            errors: list[Any] = [KafkaError(KafkaError._TIMED_OUT, "no answer")]
            return done(ListConsumerGroupsResult(valid=[], errors=errors))

    monkeypatch.setattr(groups, "connect_admin", lambda *_: Failing())
    for arguments in (["--list"], ["--describe", "--all-groups"]):
        assert groups.main(arguments) == 1
        assert "gregor groups: no answer (_TIMED_OUT). Check that" in capsys.readouterr().err


class Loading:
    """An admin client of a cluster whose coordinators load: each request has this error, and succeeds when it is
    repeated. It has the groups "g" and "h"."""

    def __init__(self, code: int) -> None:
        self.error = KafkaError(code, "the coordinator loads")
        self.sent: list[str] = []

    def _is_first(self, name: str) -> bool:
        self.sent.append(name)
        return self.sent.count(name) == 1

    def _answers(self, name: str, results: dict[str, Any]) -> dict[str, Any]:
        failed: Future[Any] = Future()
        failed.set_exception(KafkaException(self.error))
        return {key: failed if key == "g" and self._is_first(name) else done(one) for key, one in results.items()}

    def list_consumer_groups(self, **_options: Any) -> Any:
        groups: list[Any] = [SimpleNamespace(group_id=name) for name in ("g", "h")]
        errors: list[Any] = [self.error] if self._is_first("list") else []
        return done(ListConsumerGroupsResult(valid=groups, errors=errors))

    def describe_consumer_groups(self, names: list[str], **_options: Any) -> dict[str, Any]:
        state = ConsumerGroupState.EMPTY
        found = {name: ConsumerGroupDescription(name, True, [], "range", state, Node(1, "host", 1)) for name in names}
        return self._answers("describe", found)

    def list_consumer_group_offsets(self, _requests: object, **_options: Any) -> dict[str, Any]:
        return self._answers("offsets", {"g": SimpleNamespace(topic_partitions=[TopicPartition("t", 0, 3)])})

    def alter_consumer_group_offsets(self, _requests: object, **_options: Any) -> dict[str, Any]:
        part = SimpleNamespace(error=self.error if self._is_first("alter") else None)
        return {"g": done(SimpleNamespace(topic_partitions=[part]))}

    def list_offsets(self, wanted: Mapping[Any, Any]) -> dict[Any, Any]:
        return {part: done(SimpleNamespace(offset=5)) for part in wanted}

    def delete_consumer_groups(self, names: list[str], **_options: Any) -> dict[str, Any]:
        assert self.sent == [] or names == ["g"], "a group that is deleted is not deleted again"
        return self._answers("delete", dict.fromkeys(names))


@pytest.mark.parametrize(
    ("arguments", "requests"),
    [
        (["--list"], ["list"]),
        (["--delete", "--group", "g", "--group", "h"], ["delete"]),
        (["--describe", "--state", "--group", "g"], ["describe"]),
        (["--reset-offsets", "--group", "g", "--topic", "t:0", "--to-latest", "--execute"],
         ["describe", "offsets", "alter"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", sorted(coordinators.MOVING))
def test_requests_are_repeated_while_a_coordinator_moves(
    arguments: list[str],
    requests: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = Loading(code)
    monkeypatch.setattr(groups, "connect_admin", lambda *_: admin)
    for module in (coordinators, groups):
        monkeypatch.setattr(module, "PAUSE_S", 0)
    assert groups.main(arguments) == 0
    assert admin.sent == [name for name in requests for _ in range(2)]
    captured = capsys.readouterr()
    assert "loads" not in captured.err and "g" in captured.out


@pytest.mark.parametrize("arguments", [["--list"], ["--delete", "--group", "g"], ["--describe", "--group", "g"]])
def test_a_coordinator_that_moves_longer_than_the_timeout_is_an_error(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Always(Loading):
        def _is_first(self, name: str) -> bool:
            return True

    monkeypatch.setattr(groups, "connect_admin", lambda *_: Always(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    assert groups.main([*arguments, "--timeout", "1"]) == 1
    assert "the coordinator loads (COORDINATOR_LOAD_IN_PROGRESS)" in capsys.readouterr().err


def test_offsets_are_deleted_once_the_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(_request: object, _broker: object) -> OffsetDeleteResponse:
        is_first = len(client.requests(OffsetDeleteRequest)) == 1
        return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR if is_first else 0)

    client = FakeClient(
        {
            MetadataRequest: lambda *_: metadata({"t": [1]}),
            FindCoordinatorRequest: lambda *_: coordinator(2),
            OffsetDeleteRequest: answer,
        }
    )
    monkeypatch.setattr(offsets, "WireClient", lambda *_: client)
    monkeypatch.setattr(coordinators, "PAUSE_S", 0)
    assert groups.main(["--delete-offsets", "--group", "g", "--topic", "t"]) == 0
    assert len(client.requests(OffsetDeleteRequest)) == len(client.requests(FindCoordinatorRequest)) == 2
    assert "Request succeeded" in capsys.readouterr().out


def done(result: object) -> Any:
    future: Future[object] = Future()
    future.set_result(result)
    return future


def refused(*_arguments: object) -> None:
    raise CommandError("sasl.mechanism=GSSAPI: SASL/GSSAPI needs the package gssapi.")


def test_groups_are_shown_without_epochs_where_there_is_no_plaintext_listener(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (listing, views):
        monkeypatch.setattr(module, "WireClient", refused)
    node = Node(1, "host", 9092)
    newer = ConsumerGroupDescription(
        "n",
        False,
        [member("a", ("t", 0))],
        "uniform",
        ConsumerGroupState.UNKNOWN,
        node,
        type=ConsumerGroupType.CONSUMER,
    )
    older = ConsumerGroupDescription("c", False, [], "", ConsumerGroupState.EMPTY, node, type=ConsumerGroupType.CLASSIC)
    admin: Any = Admin(newer, older)
    classic, consumer = views.describe_groups(admin, ["n", "c"], "host:9092", None, 1.0)
    assert (classic.kind, classic.state, consumer.kind, consumer.state) == ("Classic", "Empty", "Consumer", "Unknown")
    assert state_table(consumer, verbose=True)[1][0][4:] == ["-", "-", 1]
    assert member_table(consumer, verbose=True)[1][0][5:] == ["-", "t:0", "-", "-"]
    listing.list_groups(admin, ANY, "consumer", "host:9092", None, 1.0)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["GROUP", "TYPE", "STATE"],
        ["n", "Consumer", "Unknown"],
    ]
    listing.list_groups(admin, None, None, "host:9092", None, 1.0)
    assert capsys.readouterr().out == "c\nn\n"


def test_members_of_both_protocols_show_which_they_use() -> None:
    columns, rows = member_table(consumer_group(1, 0), verbose=True)
    assert columns[-1].name == "UPGRADED"
    assert [row[-1] for row in rows] == ["true", "false"]
    for types in ((0, 0), (1, -1)):
        assert member_table(consumer_group(*types), verbose=True)[0][-1].name == "TARGET-ASSIGNMENT"
    assert member_table(consumer_group(1, 0), verbose=False)[0][-1].name == "#PARTITIONS"


def test_regular_expressions(capsys: pytest.CaptureFixture[str]) -> None:
    assert groups.main(["--validate-regex", "orders-.*"]) == 0
    assert capsys.readouterr().out == "The regular expression `orders-.*` is valid.\n"
    assert groups.main(["--validate-regex", "(?=x)"]) == 1
    assert "The regular expression `(?=x)` is invalid" in capsys.readouterr().err


def test_places() -> None:
    assert partitions_text([("b", 1), ("a", 2), ("a", 0)]) == "a:0,2;b:1"
    assert partitions_text([]) == "-"
