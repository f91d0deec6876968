"""Partitions moved, and the time for which they had no owner."""

from collections.abc import Mapping, Sequence

from gregor.coordinator.history import ownership
from gregor.coordinator.history.causes import Cause, Identity, Rejoin, Trigger
from gregor.coordinator.history.ownership import Releases, Unowned
from gregor.coordinator.history.rebalance import Arrival, Assigned, Claim, GroupType, Outcome, Rebalance
from gregor.coordinator.history.records import encode
from gregor.coordinator.history.summary import MAX_MEMBERS, MAX_MOVED_PARTITIONS, Summaries
from gregor.coordinator.history.texts import line
from gregor.protocol.messages import RebalanceValue
from gregor.protocol.turns import run_all
from tests.coordinator.history.facts import Topics, values_of
from tests.coordinator.history.messages_of_consumers import assignment, subscription

Partitions = Mapping[str, Sequence[int]]


def ended(
    before: Mapping[str, Partitions],
    after: Mapping[str, Partitions],
    *,
    claims: Mapping[str, Claim] | None = None,
    gone: Mapping[str, int] | None = None,
    ended_ms: int = 1_000,
    epoch: int = 2,
) -> Rebalance:
    """A rebalance that began at 0."""
    return Rebalance(
        "g",
        GroupType.CLASSIC,
        epoch,
        0,
        before={name: assignment(partitions) for name, partitions in before.items()},
        assigned=[Assigned(name, assignment(partitions)) for name, partitions in after.items()],
        claims={name: [claim] for name, claim in (claims or {}).items()},
        gone=dict(gone or {}),
        ended_ms=ended_ms,
        outcome=Outcome.ASSIGNED if after else Outcome.EMPTY,
        protocol_type="consumer",
    )


def eager(at_ms: int) -> Claim:
    return Claim(at_ms, subscription("t", version=0))


def cooperative(at_ms: int, **owned: Sequence[int]) -> Claim:
    return Claim(at_ms, subscription("t", owned=owned))


def gaps(value: RebalanceValue) -> tuple[int, int]:
    return value.without_owner, value.without_owner_ms


def test_eager_members_have_no_partitions_from_their_joins_on() -> None:
    (value,) = values_of(
        [
            ended(
                {"a": {"t": [0, 1]}, "b": {"t": [2]}},
                {"a": {"t": [0]}, "b": {"t": [1]}, "c": {"t": [2]}},
                claims={"a": eager(100), "b": eager(400), "c": eager(0)},
            )
        ]
    )
    assert (value.partitions, value.moved, value.added, value.removed) == (3, 2, 0, 0)
    assert gaps(value) == (3, 900)
    assert [(move.topic, move.from_member, move.to_member, move.partitions) for move in value.moves] == [
        ("t", "a", "b", [1]),
        ("t", "b", "c", [2]),
    ]


def test_the_claims_of_each_member_are_decoded_in_a_step_of_their_own() -> None:
    claims = {f"m{number}": [cooperative(0, t=[number])] for number in range(100)}
    steps = Releases.of_members(claims, {})
    assert sum(1 for _ in steps) == 100


def test_cooperative_rebalance_leaves_only_what_moves_without_owner() -> None:
    first = ended(
        {"a": {"t": [0, 1]}},
        {"a": {"t": [0]}, "b": {}},
        claims={"a": cooperative(50, t=[0, 1]), "b": cooperative(0)},
    )
    second = ended(
        {"a": {"t": [0]}, "b": {}},
        {"a": {"t": [0]}, "b": {"t": [1]}},
        claims={"a": cooperative(1_100, t=[0]), "b": cooperative(1_200)},
        ended_ms=1_300,
        epoch=3,
    )
    values = values_of([first, second])
    assert [(value.moved, value.added, value.removed) for value in values] == [(0, 0, 1), (0, 1, 0)]
    assert [gaps(value) for value in values] == [(0, 0), (1, 300)]


def test_partitions_that_were_revoked_are_not_new() -> None:
    topics = Topics(t=4)
    summaries = Summaries(1, topics)
    run_all(summaries.value_of(ended({"a": {"t": [0, 1, 2, 3]}}, {"a": {"t": [0, 1]}, "b": {}})))
    rejoin = Rejoin({"range": subscription("t")}, {"range": subscription("t")}, leads=True)
    second = ended({"a": {"t": [0, 1]}, "b": {}}, {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}, epoch=3)
    second.protocol_before = "range"
    second.add_cause(Cause(Trigger.MEMBER_REJOINED, Identity("b", None, "", ""), rejoin=rejoin), 0)
    assert run_all(summaries.value_of(second)).causes[0].trigger == "member rejoined"


def test_partitions_of_a_member_that_is_gone() -> None:
    (value,) = values_of(
        [
            ended(
                {"a": {"t": [0]}, "b": {"t": [1]}},
                {"a": {"t": [0, 1]}},
                claims={"a": cooperative(600, t=[0])},
                gone={"b": 300},
            )
        ]
    )
    assert (value.moved, gaps(value)) == (1, (1, 700))


def test_static_member_that_was_not_waited_for_keeps_its_partitions() -> None:
    (value,) = values_of([ended({"a": {"t": [0]}}, {"a": {"t": [0]}})])
    assert (value.moved, gaps(value)) == (0, (0, 0))


def test_partitions_have_no_owner_while_a_group_is_empty() -> None:
    empty = ended({"a": {"t": [0]}}, {}, gone={"a": 200}, ended_ms=200)
    again = ended({}, {"b": {"t": [0]}}, ended_ms=5_200, epoch=3)
    values = values_of([empty, again])
    assert [(value.removed, value.added) for value in values] == [(1, 0), (0, 1)]
    assert gaps(values[1]) == (1, 5_000)


def test_assignments_that_are_no_consumers_are_only_counted() -> None:
    rebalance = ended({"a": {"t": [0]}, "b": {"t": [1]}}, {"a": {"t": [0]}, "b": {"t": [2]}, "c": {}})
    rebalance.protocol_type = "connect"
    (value,) = values_of([rebalance])
    assert (value.partitions, value.moved, value.moves, gaps(value)) == (-1, 2, [], (0, -1))


def test_assignments_that_cannot_be_decoded_are_only_counted() -> None:
    rebalance = ended({"a": {"t": [0]}}, {})
    rebalance.assigned = [Assigned("a", b"\x00\x00\x7f")]
    (value,) = values_of([rebalance])
    assert (value.partitions, value.moved) == (-1, 1)


def test_superseded_rebalance_moved_nothing() -> None:
    rebalance = ended({"a": {"t": [0]}}, {})
    rebalance.outcome = Outcome.SUPERSEDED
    (value,) = values_of([rebalance])
    assert (value.partitions, value.moved, gaps(value)) == (-1, 0, (0, -1))


def test_record_of_a_large_group_is_bounded() -> None:
    names = [f"member-{number}" * 30 for number in range(2 * MAX_MEMBERS)]
    rebalance = ended({names[0]: {"t": range(5_000)}}, {name: {"t": [number]} for number, name in enumerate(names)})
    rebalance.arrivals = [Arrival(Identity(name, None, "c" * 4_000, "/h"), 10) for name in names]
    for name in names:
        rebalance.add_cause(Cause(Trigger.MEMBER_JOINED, Identity(name, None, "c", "/h"), "r" * 9_000), 5)
    (value,) = values_of([rebalance])
    assert (value.members_count, len(value.members), value.causes_count) == (2 * MAX_MEMBERS, MAX_MEMBERS, len(names))
    assert sum(len(move.partitions) for move in value.moves) <= MAX_MOVED_PARTITIONS
    assert (value.moved, value.removed) == (len(names) - 1, 5_000 - len(names))
    assert len(encode("g", value)[1]) < 300_000


def test_longest_waits_come_first() -> None:
    rebalance = ended({}, {"a": {}})
    rebalance.arrivals = [
        Arrival(Identity(name, None, "", ""), at_ms) for name, at_ms in (("a", 5), ("b", 900), ("c", -1))
    ]
    (value,) = values_of([rebalance])
    assert [(one.member_id, one.waited_ms) for one in value.members] == [("b", 900), ("a", 5), ("c", 0)]


def test_memory_of_partitions_without_owner_is_bounded() -> None:
    unowned = Unowned()
    size = ownership.MAX_UNOWNED // 2
    for group in ("a", "b", "c"):
        unowned.put(group, {("t", number): 1 for number in range(size)})
    assert (len(unowned.pop("a")), len(unowned.pop("c"))) == (0, size)
    unowned.put("d", {("t", number): 1 for number in range(2 * size + 1)})
    assert unowned.pop("d") == {}


def test_group_that_was_deleted_is_forgotten() -> None:
    summaries = Summaries(1, Topics())
    run_all(summaries.value_of(ended({"a": {"t": [0]}}, {}, gone={"a": 200}, ended_ms=200)))
    summaries.forget("g")
    value = run_all(summaries.value_of(ended({}, {"b": {"t": [0]}}, ended_ms=5_200)))
    assert gaps(value) == (0, -1)


def test_line_of_the_log() -> None:
    rebalance = ended({"a": {"t": [0, 1]}}, {"a": {"t": [0]}, "b": {"t": [1]}}, claims={"a": eager(400)})
    rebalance.add_cause(Cause(Trigger.MEMBER_JOINED, Identity("b", None, "client", "/10.0.0.1"), "because"), 0)
    rebalance.arrivals = [Arrival(Identity("a", None, "x", "/10.0.0.2"), 400)]
    rebalance.not_recorded = 3
    (value,) = values_of([rebalance])
    assert line("g", value) == (
        "Group 'g': generation 2 assigned after 1000 ms, members: 1; "
        "member joined: 'b' (client 'client' at 10.0.0.1), client reason 'because'; waited for 'a' 400 ms; "
        "partitions: 2, moved 1, without owner 2 for up to 600 ms; not recorded before it: 3"
    )
