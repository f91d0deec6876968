"""`gregor groups --describe --status`: two samples of each group, and the row that they make."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState, Node
from confluent_kafka.admin import ConsumerGroupDescription, MemberAssignment, MemberDescription

from gregor.broker.cli.groups import command
from gregor.broker.cli.groups.status import Pairs, read_statuses, status_table
from gregor.broker.cli.groups.views import GroupView, view_of
from gregor.broker.metrics.lag.status import Sample
from gregor.protocol.topic_partition import TopicPartitionKey

FIRST, SECOND = ("t", 0), ("t", 1)


def group(members: int) -> GroupView:
    described = [MemberDescription(f"m{n}", "c", "/127.0.0.1", MemberAssignment([]), None) for n in range(members)]
    state = ConsumerGroupState.STABLE if members else ConsumerGroupState.EMPTY
    return view_of(ConsumerGroupDescription("g", False, described, "range", state, Node(1, "host", 9092)))


def pair(*positions: tuple[int, int]) -> tuple[Sample, Sample]:
    """Offset and lag, of both samples."""
    before, after = (Sample(number * 10_000, offset, 0, lag) for number, (offset, lag) in enumerate(positions))
    return before, after


@pytest.mark.parametrize(
    ("positions", "members", "status"),
    [
        ([(5, 3), (6, 9)], 1, "ok"),
        ([(5, 3), (5, 0)], 0, "ok"),
        ([(5, 3), (5, 3)], 1, "stalled"),
        ([(5, 3), (5, 4)], 0, "stopped"),
        ([(5, 3), (4, 4)], 1, "rewinding"),
    ],
)
def test_the_row_has_the_status(positions: list[tuple[int, int]], members: int, status: str) -> None:
    _, ((name, found, lag, count, reason),) = status_table(group(members), {FIRST: pair(*positions)}, 10)
    assert (name, found, lag, count) == ("g", status, positions[1][1], 1)
    assert str(reason).startswith("in 10 s: ")


def test_the_worst_partition_counts() -> None:
    pairs: Pairs = {FIRST: pair((5, 3), (6, 2)), SECOND: pair((5, 3), (5, 7))}
    assert status_table(group(0), pairs, 10)[1][0][:4] == ["g", "stopped", 9, 1]
    assert status_table(group(0), {}, 10)[1] == [["g", "ok", 0, 0, "it has no committed offsets"]]


def test_positions_of_all_groups_are_read_before_and_after_the_interval() -> None:
    read: list[str | float] = []

    def sample(name: str) -> dict[TopicPartitionKey, Sample]:
        read.append(name)
        at = len(read)
        keys = [FIRST, SECOND] if at < 3 else [FIRST]  # the topic of the other was deleted
        return {key: Sample(at, at, 0, 1) for key in keys}

    found = read_statuses(sample, ["a", "b"], 2.5, read.append)
    assert read == ["a", "b", 2.5, "a", "b"]
    assert found == {
        "a": {FIRST: (Sample(1, 1, 0, 1), Sample(4, 4, 0, 1))},
        "b": {FIRST: (Sample(2, 2, 0, 1), Sample(5, 5, 0, 1))},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--describe", "--group", "g", "--status", "--members"], "--members and --status contradict each other"),
        (["--list", "--status"], "need --describe"),
        (["--describe", "--group", "g", "--status", "0"], "not in the range"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) != 0
    assert message in capsys.readouterr().err
