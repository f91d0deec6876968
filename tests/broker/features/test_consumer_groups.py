"""The downgrade of group.version: refused while consumers need the protocol, complete when all groups are classic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gregor.broker.features.consumer_groups import ConsumerGroupsOfBrokers
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gregor.replication.store.time_limit import TimeLimit
from tests.broker.features.brokers import EPOCH, OtherBroker, downgrade_on
from tests.replication.fakes import on_loop

CLASSIC, CONSUMER = 0, 1
Listing = Any
"""Groups with the protocols of their members, or an error code. A group without a list is deleted by then."""


class Broker(OtherBroker):
    """A broker, this one or another: each list of its groups is the next of `listings`, the last one repeatedly."""

    def __init__(self, *listings: Listing) -> None:
        super().__init__()
        self.listings = list(listings)
        self.present: dict[str, Sequence[int] | None] = {}
        self.lists = 0
        self.ended = 0

    async def list_groups(self, request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        assert request.types_filter == ["consumer"]
        self.lists += 1
        listing = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]
        if isinstance(listing, ErrorCode):
            return ListGroupsResponse(error_code=listing)
        self.present = listing
        make = ListGroupsResponse.ListedGroup
        others = [make(group_id="classic", group_type="classic"), make(group_id="of an old broker")]
        groups = [
            make(group_id=name, group_type="Consumer", group_state="Empty" if members == [] else "Stable")
            for name, members in listing.items()
        ]
        return ListGroupsResponse(groups=[*groups, *others])

    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        assert self.describes
        return ConsumerGroupDescribeResponse(groups=[self._described(name) for name in request.group_ids])

    def _described(self, name: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        make, member = ConsumerGroupDescribeResponse.DescribedGroup, ConsumerGroupDescribeResponse.Member
        kinds = self.present[name]
        if kinds is None:
            return make(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return make(group_id=name, members=[member(member_type=kind) for kind in kinds])

    async def end_consumer_groups(self) -> None:
        self.ended += 1

    async def answer(self, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            return await self.list_groups(request, 5)
        return await self.consumer_group_describe(request)


async def check(here: Broker, *others: Broker) -> None:
    await downgrade_on(ConsumerGroupsOfBrokers(here), *others).check(EPOCH, TimeLimit(10_000))


async def end(here: Broker, *others: Broker, timeout_ms: int = 10_000) -> None:
    await downgrade_on(ConsumerGroupsOfBrokers(here), *others).end(EPOCH, TimeLimit(timeout_ms))


@on_loop
async def test_safe_downgrade_is_refused_while_consumers_need_the_protocol() -> None:
    other = Broker({"h": [CLASSIC, CONSUMER], "mixed": [CLASSIC], "empty": [], "gone": None})
    with pytest.raises(KafkaError, match=r"2 groups have members of the consumer protocol \(g, h\)") as error:
        await check(Broker({"g": [CONSUMER]}), other)
    assert error.value.code == ErrorCode.NON_EMPTY_GROUP
    assert "--unsafe" in error.value.message
    assert other.closed


@on_loop
async def test_safe_downgrade_needs_no_group_of_consumers() -> None:
    other = Broker(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {"mixed": [CLASSIC], "empty": []})
    await check(Broker({}), other)
    assert other.lists == 2


@on_loop
async def test_broker_that_does_not_serve_the_protocol_is_known_by_its_list() -> None:
    other = Broker({"empty": []})
    other.describes = False
    await check(Broker({}), other)
    other.listings = [{"empty": [], "loaded": [CONSUMER]}]
    with pytest.raises(KafkaError, match=r"1 groups have members of the consumer protocol \(loaded\)"):
        await check(Broker({}), other)


@on_loop
async def test_downgrade_is_complete_when_no_consumer_group_is_left() -> None:
    here, other = Broker({"g": []}, {}), Broker({"h": []}, {"h": []}, {})
    await end(here, other)
    assert (here.ended, here.lists, other.lists) == (1, 3, 3)
    slow = Broker({f"group-{number}": [] for number in range(7)})
    with pytest.raises(KafkaError, match=r"7 consumer groups are not classic ones yet \(group-0.*group-4, \.\.\.\)"):
        await end(slow, timeout_ms=0)
