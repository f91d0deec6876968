"""JoinGroup: ids, protocols, group size, and the contents of the responses of each version."""

import pytest

from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from tests.coordinator.context import Context

DELAY_MS = 3_000


def test_a_first_join_is_told_its_id_and_leaves_an_empty_group_in_the_log() -> None:
    with Context() as context:
        join = context.join(client_id="kcat")
        assert join.error is ErrorCode.MEMBER_ID_REQUIRED
        assert (join.response.member_id, join.response.generation_id) == ("kcat-u1", -1)
        assert len(context.log.records()) == 1
        assert context.state() is GroupState.EMPTY
        context.join(client_id="other")
        assert len(context.log.records()) == 1


@pytest.mark.parametrize("version", [0, 3])
def test_before_v4_a_join_without_id_is_let_in_at_once(version: int) -> None:
    with Context() as context:
        join = context.join(version=version)
        assert not join.done
        context.sleep(DELAY_MS)
        assert (join.error, join.response.member_id) == (ErrorCode.NONE, "client-u1")


def test_a_client_without_a_name_gets_an_id_too() -> None:
    with Context() as context:
        assert context.join(client_id=None).response.member_id == "-u1"


def test_the_leader_gets_the_members_and_the_others_do_not() -> None:
    with Context() as context:
        first, one = context.new_member(protocols=[("range", b"1")])
        second, two = context.new_member(protocols=[("range", b"2")])
        context.sleep(2 * DELAY_MS)
        for join, member_id in ((one, first), (two, second)):
            response = join.response
            assert (response.error_code, response.generation_id, response.leader) == (0, 1, first)
            assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
            assert (response.member_id, response.skip_assignment) == (member_id, False)
        assert [(m.member_id, m.metadata) for m in one.response.members] == [(first, b"1"), (second, b"2")]
        assert two.response.members == []


def test_an_id_that_nobody_was_given_is_unknown() -> None:
    with Context() as context:
        assert context.join("made-up").error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.log.records() == []
        context.stable_group()
        assert context.join("made-up").error is ErrorCode.UNKNOWN_MEMBER_ID
        assert context.state() is GroupState.STABLE


def test_an_id_that_was_handed_out_lasts_one_session() -> None:
    with Context() as context:
        member_id = context.join(session_ms=10_000).response.member_id
        context.sleep(10_000)
        assert context.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_most_members_want_wins_among_those_all_speak() -> None:
    with Context() as context:
        offers = [[("a", b""), ("b", b"")], [("b", b""), ("a", b"")], [("c", b""), ("b", b""), ("a", b"")]]
        joins = [context.new_member(protocols=offer)[1] for offer in offers]
        context.sleep(4 * DELAY_MS)
        assert {join.response.protocol_name for join in joins} == {"b"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", [("range", b"")]), ("consumer", [("sticky", b"")]), ("consumer", [])],
)
def test_who_has_nothing_in_common_with_the_group_stays_out(
    protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    with Context() as context:
        context.stable_group()
        join = context.join(protocol_type=protocol_type, protocols=protocols)
        assert (join.error, join.response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert context.state() is GroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [("range", b"")]), ("consumer", [])])
def test_a_join_that_offers_nothing_creates_no_group(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    with Context() as context:
        join = context.join(protocol_type=protocol_type, protocols=protocols)
        assert join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert context.state() is GroupState.DEAD
        assert context.log.records() == []


def test_a_group_that_forms_keeps_the_protocol_type_of_members_that_left() -> None:
    with Context() as context:
        first, _ = context.new_member()
        context.leave(first)
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.join(protocol_type="connect", protocols=[("eager", b"")]).error is (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        )
        assert context.join(protocols=[]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        _, join = context.new_member(protocols=[("sticky", b"")])
        context.sleep(2 * DELAY_MS)
        assert (join.response.protocol_name, join.response.generation_id) == ("sticky", 1)


def test_an_empty_group_may_change_its_protocol_type() -> None:
    with Context() as context:
        (member_id,) = context.stable_group()
        context.leave(member_id)
        _, join = context.new_member(protocol_type="connect", protocols=[("eager", b"")])
        context.sleep(DELAY_MS)
        assert (join.response.protocol_type, join.response.generation_id) == ("connect", 3)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_the_session_timeout_has_bounds(session_ms: int) -> None:
    with Context() as context:
        assert context.join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    with Context() as context:
        member_id, _ = context.new_member(version=4, rebalance_ms=-1, session_ms=7_000)
        context.join(version=0, rebalance_ms=50_000, session_ms=8_000)
        members = context.shard.soft.memberships["g"].members
        assert [member.rebalance_timeout_ms for member in members.values()] == [7_000, 8_000]
        assert member_id in members


@pytest.mark.parametrize("version", range(10))
def test_responses_can_be_sent_in_every_version(version: int) -> None:
    with Context() as context:
        assert context.join("made-up", version=version).response.encode(version)
        first, parked = context.new_member(version=4)
        other = context.join(version=version)
        if version >= 4:
            assert other.response.encode(version)
            other = context.join(other.response.member_id, version=version)
        context.sleep(3 * DELAY_MS)
        assert parked.response.leader == first
        assert parked.response.encode(version)
        assert other.response.encode(version)


# --- group.max.size


def test_a_full_group_turns_newcomers_away_and_keeps_its_members() -> None:
    with Context(max_size=2) as context:
        leader, follower = context.stable_group(2)
        join = context.join()
        assert (join.error, join.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert context.state() is GroupState.STABLE
        assert context.join(follower).error is ErrorCode.NONE
        rejoin = context.join(leader)
        assert context.join().error is ErrorCode.NONE or context.state() is GroupState.PREPARING_REBALANCE
        assert not rejoin.done


def test_while_a_group_prepares_a_place_is_a_parked_join() -> None:
    with Context(max_size=1) as context:
        first, join = context.new_member()
        late = context.join()
        assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        context.sleep(DELAY_MS)
        assert (join.error, join.response.member_id) == (ErrorCode.NONE, first)


def test_a_group_that_is_too_large_after_a_load_keeps_those_who_rejoin_first() -> None:
    with Context(max_size=3) as context:
        ids = context.stable_group(3)
        context.config = type(context.config)(max_size=2)
        context.restart()
        assert context.state() is GroupState.PREPARING_REBALANCE
        assert context.heartbeat(ids[0], 1) is ErrorCode.REBALANCE_IN_PROGRESS
        joins = [context.join(member_id) for member_id in ids]
        assert [join.error for join in joins] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ]
        assert context.heartbeat(ids[2], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_that_is_turned_away_is_forgotten() -> None:
    with Context(max_size=1) as context:
        told = context.join().response.member_id
        _, join = context.new_member()
        assert context.join(told).error is ErrorCode.GROUP_MAX_SIZE_REACHED
        context.sleep(DELAY_MS)
        assert join.error is ErrorCode.NONE


# --- joining again


def test_a_second_join_of_a_parked_member_takes_the_place_of_the_first() -> None:
    with Context() as context:
        member_id, first = context.new_member()
        second = context.join(member_id)
        assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
        context.sleep(DELAY_MS)
        assert (second.error, second.response.generation_id) == (ErrorCode.NONE, 1)


def test_a_follower_with_another_subscription_causes_a_rebalance() -> None:
    with Context() as context:
        leader, follower = context.stable_group(2)
        join = context.join(follower, protocols=[("range", b"other")])
        assert (join.done, context.state()) == (False, GroupState.PREPARING_REBALANCE)
        rejoin = context.join(leader)
        assert rejoin.response.members[1].metadata == b"other"
        assert join.response.generation_id == 2


def test_the_order_of_what_a_member_offers_matters() -> None:
    with Context() as context:
        offer = [("a", b""), ("b", b"")]
        _, follower = context.stable_group_of([offer, offer])
        assert context.join(follower, protocols=offer).response.generation_id == 1
        assert not context.join(follower, protocols=offer[::-1]).done


def test_of_two_protocols_with_one_name_the_first_counts() -> None:
    with Context() as context:
        member_id, join = context.new_member(protocols=[("range", b"1"), ("other", b""), ("range", b"2")])
        context.sleep(2 * DELAY_MS)
        assert [(one.member_id, one.metadata) for one in join.response.members] == [(member_id, b"1")]


def test_a_failed_append_of_a_new_group_leaves_nothing() -> None:
    with Context() as context:
        context.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert context.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (context.state(), context.shard.soft.memberships) == (GroupState.DEAD, {})
        context.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert context.join(version=3).error is ErrorCode.NOT_COORDINATOR
        assert (context.state(), context.shard.soft.memberships) == (GroupState.DEAD, {})
        context.sleep(400_000)
        assert context.log.records() == []


def test_a_group_falls_back_to_the_protocol_that_all_members_still_offer() -> None:
    """A rolling restart of consumers from one assignor to another and back (KIP-429)."""
    both = [("cooperative-sticky", b"c"), ("range", b"r")]
    with Context() as context:
        first, second = context.stable_group_of([both, both])
        assert context.describe().protocol_data == "cooperative-sticky"
        downgraded = context.join(first, protocols=both[1:])
        other = context.join(second, protocols=both)
        assert (downgraded.response.generation_id, downgraded.response.protocol_name) == (2, "range")
        assert other.response.protocol_name == "range"
        context.sync_all([first, second], 2)
        assert context.join(protocols=both[:1]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        upgraded = context.join(first, protocols=both)
        context.join(second, protocols=both)
        assert upgraded.response.protocol_name == "cooperative-sticky"


@pytest.mark.parametrize("version", range(10))
def test_a_response_without_a_protocol_has_null_where_the_version_can(version: int) -> None:
    """As Kafka's JoinGroupResponse."""
    with Context() as context:
        context.stable_group()
        expected = "" if version < 7 else None
        for refused in (
            context.join("nobody", version=version),
            context.join(protocols=[("other", b"")], version=version),
            context.join(session_ms=1, version=version),
        ):
            assert refused.response.error_code
            assert refused.response.protocol_name == expected
