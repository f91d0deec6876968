"""Membership: how it is loaded from the log, and how it counts."""

import pytest

from gregor.coordinator.group.group import Membership
from gregor.coordinator.group.member import Member
from gregor.coordinator.group.states import GroupState
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import GroupMetadataValue


def value(*ids: str, leader: str | None = None, generation: int = 3, protocol: str | None = "p") -> GroupMetadataValue:
    member = GroupMetadataValue.MemberMetadata
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=77,
        members=[
            member(
                member_id=member_id,
                group_instance_id=f"i-{member_id}",
                rebalance_timeout=-1,
                session_timeout=9,
                subscription=member_id.encode(),
                assignment=b"!",
            )
            for member_id in ids
        ],
    )


def member(member_id: str, *protocols: str) -> Member:
    return Member(
        member_id,
        None,
        "client",
        "/host",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        protocols=dict.fromkeys(protocols, b""),
        group_id="g",
    )


def test_what_the_log_says() -> None:
    membership = Membership.from_metadata("g", value("a", "b", leader="b"))
    assert (membership.state, membership.generation, membership.leader) == (GroupState.STABLE, 3, "b")
    assert (membership.protocol_type, membership.protocol, membership.state_timestamp_ms) == ("consumer", "p", 77)
    assert membership.static_members == {"i-a": "a", "i-b": "b"}
    first = membership.members["a"]
    assert (first.protocols, first.assignment) == ({"p": b"a"}, b"!")
    # The first format of the record knew one timeout only.
    assert (first.rebalance_timeout_ms, first.session_timeout_ms) == (9, 9)


def test_an_empty_group_and_one_that_the_log_does_not_know() -> None:
    left = Membership.from_metadata("g", value(protocol=None))
    assert (left.state, left.generation, left.protocol_type, left.protocol) == (GroupState.EMPTY, 3, "consumer", None)
    new = Membership.from_metadata("g", None)
    assert (new.state, new.generation, new.protocol_type) == (GroupState.EMPTY, 0, None)


@pytest.mark.parametrize("leader", [None, "gone"])
def test_a_leader_that_is_no_member_is_replaced(leader: str | None) -> None:
    assert Membership.from_metadata("g", value("a", "b", leader=leader)).leader == "a"


def test_taking_in_the_same_generation_keeps_soft_state() -> None:
    membership = Membership.from_metadata("g", value("a", "b", leader="a"))
    known = membership.members["a"]
    coming = membership.candidates["c"] = member("c", "p", "q")
    membership.unsynced = {"a", "b"}
    membership.adopt(value("a", "c", leader="a"))
    assert membership.members == {"a": known, "c": coming}
    assert (membership.support, membership.unsynced, membership.candidates) == ({"p": 2, "q": 1}, {"a"}, {})


def test_the_birth_of_a_group_does_not_stop_who_is_joining() -> None:
    membership = Membership("g")
    membership.add(member("a", "p"), "consumer")
    membership.move_to(GroupState.PREPARING_REBALANCE, 1)
    membership.adopt(value(generation=0, protocol=None))
    assert (membership.state, list(membership.members)) == (GroupState.PREPARING_REBALANCE, ["a"])


def test_a_generation_out_of_nowhere_is_not_taken_in() -> None:
    membership = Membership("g")
    with pytest.raises(ValueError, match="cannot go from Empty to Stable"):
        membership.adopt(value("a"))
    with pytest.raises(ValueError, match="no protocol"):
        membership.to_metadata({})


def test_a_protocol_needs_all_members() -> None:
    membership = Membership("g")
    membership.add(member("a", "p", "q"), "consumer")
    membership.add(member("b", "q", "r"), "consumer")
    assert membership.support == {"p": 1, "q": 2, "r": 1}
    assert membership.supports("consumer", ["r", "q"])
    assert not membership.supports("consumer", ["p", "r"])
    assert not membership.supports("connect", ["q"])
    assert membership.select_protocol() == "q"
    membership.remove("b")
    assert membership.support == {"p": 1, "q": 1}
    assert membership.select_protocol() == "p"


def test_of_two_protocols_with_as_many_votes_the_first_voted_for_wins() -> None:
    membership = Membership("g")
    membership.add(member("a", "q", "p"), "consumer")
    membership.add(member("b", "p", "q"), "consumer")
    assert membership.select_protocol() == "q"


def test_the_lead_goes_to_the_next_member() -> None:
    membership = Membership("g")
    for member_id in ("a", "b"):
        membership.add(member(member_id, "p"), "consumer")
    assert membership.leader == "a"
    membership.remove("a")
    assert membership.leader == "b"
    membership.remove("b")
    membership.remove("never was")
    assert (membership.leader, membership.support) == (None, {})


def test_who_speaks_for_a_member() -> None:
    membership = Membership.from_metadata("g", value("a", leader="a"))
    assert membership.member_error("a", None) is ErrorCode.NONE
    assert membership.member_error("a", "i-a") is ErrorCode.NONE
    assert membership.member_error("b", "i-a") is ErrorCode.FENCED_INSTANCE_ID
    assert membership.member_error("a", "i-b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert membership.member_error("b", None) is ErrorCode.UNKNOWN_MEMBER_ID
