"""The downgrade of group.version: refused while consumers need the protocol, complete when all groups are classic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.groups.downgrade import ConsumerGroupsEnd, GroupDowngrade
from gregor.config.broker import BrokerConfig
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gregor.replication.admin.features import Downgrade
from gregor.replication.channels.peer import PeerError

GROUPS = "group.version"
CLASSIC, CONSUMER = 0, 1
Listing = Any
"""Groups with the protocols of their members, an error code, or a failure."""


class Broker:
    """A broker, this one or another: each list of its groups is the next of `listings`, the last one repeatedly."""

    def __init__(self, *listings: Listing) -> None:
        self.listings = list(listings)
        self.present: dict[str, Sequence[int]] = {}
        self.lists = 0
        self.ended = 0
        self.closed = False

    async def list_groups(self, request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        assert request.types_filter == ["consumer"]
        self.lists += 1
        listing = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]
        if isinstance(listing, Exception):
            raise listing
        if isinstance(listing, ErrorCode):
            return ListGroupsResponse(error_code=listing)
        self.present = listing
        make = ListGroupsResponse.ListedGroup
        others = [make(group_id="classic", group_type="classic"), make(group_id="of an old broker")]
        return ListGroupsResponse(groups=[*(make(group_id=name, group_type="Consumer") for name in listing), *others])

    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        make, member = ConsumerGroupDescribeResponse.DescribedGroup, ConsumerGroupDescribeResponse.Member
        return ConsumerGroupDescribeResponse(
            groups=[
                make(group_id=name, members=[member(member_type=kind) for kind in self.present[name]])
                for name in request.group_ids
            ]
        )

    async def end_consumer_groups(self) -> None:
        self.ended += 1
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it loads")

    async def send(self, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            return await self.list_groups(request, 5)
        return await self.consumer_group_describe(request)

    def close(self) -> None:
        self.closed = True


def steps(here: Broker, *others: Broker) -> GroupDowngrade:
    brokers = {
        broker_id: SimpleNamespace(endpoints={"PLAINTEXT": SimpleNamespace(host="host", port=broker_id)})
        for broker_id in range(len(others) + 1)
    }
    image: Any = SimpleNamespace(brokers=brokers)
    gate: Any = None
    new_peer: Any = lambda host, port: others[port - 1]  # noqa: E731
    config = BrokerConfig({"broker.id": "0", "log.dirs": "d"})
    return GroupDowngrade(config, image, here, gate, new_peer=new_peer, poll_s=0)


def downgrade(*, is_safe: bool = True, name: str = GROUPS, after: int = 0) -> Downgrade:
    return Downgrade(name, 1, after, is_safe)


def test_safe_downgrade_is_refused_while_consumers_need_the_protocol() -> None:
    other = Broker({"h": [CLASSIC, CONSUMER], "mixed": [CLASSIC], "empty": []})
    with pytest.raises(KafkaError, match=r"2 groups have members of the consumer protocol \(g, h\)") as error:
        asyncio.run(steps(Broker({"g": [CONSUMER]}), other).prepare(downgrade(), 1000))
    assert error.value.code == ErrorCode.NON_EMPTY_GROUP
    assert "--unsafe" in error.value.message
    assert other.closed


def test_safe_downgrade_needs_no_group_of_consumers() -> None:
    other = Broker(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PeerError("no"), {"mixed": [CLASSIC], "empty": []})
    asyncio.run(steps(Broker({}), other).prepare(downgrade(), 1000))
    assert (other.lists, other.closed) == (3, True)


@pytest.mark.parametrize(
    "other", [downgrade(is_safe=False), downgrade(name="transaction.version"), downgrade(after=1)], ids=str
)
def test_other_downgrades_need_no_preparation(other: Downgrade) -> None:
    here = Broker({"g": [CONSUMER]})
    asyncio.run(steps(here).prepare(other, 1000))
    assert here.lists == 0


def test_groups_of_a_broker_that_does_not_answer_are_not_known() -> None:
    with pytest.raises(KafkaError, match="groups of broker 1 are not known: refused") as error:
        asyncio.run(steps(Broker({}), Broker(PeerError("refused"))).prepare(downgrade(), 20))
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_downgrade_is_complete_when_no_consumer_group_is_left() -> None:
    here, other = Broker({"g": []}, {}), Broker({"h": []}, {"h": []}, {})
    asyncio.run(steps(here, other).complete(downgrade(is_safe=False), 5000))
    assert (here.lists, other.lists) == (3, 3)
    slow = Broker({f"group-{number}": [] for number in range(7)})
    with pytest.raises(KafkaError, match=r"7 consumer groups are not classic ones yet \(group-0.*group-4, \.\.\.\)"):
        asyncio.run(steps(slow).complete(downgrade(), 20))
    asyncio.run(steps(slow).complete(downgrade(after=1), 20))


def test_each_broker_ends_its_groups_when_the_level_falls(caplog: pytest.LogCaptureFixture) -> None:
    level = 1
    features: Any = SimpleNamespace(group_version=lambda: level, on_changed=[])
    here = Broker({})
    spawned: list[Any] = []
    ConsumerGroupsEnd(features, here, spawned.append)
    (changed,) = features.on_changed
    changed()
    assert spawned == []
    level = 0
    changed()
    changed()
    (work,) = spawned
    with caplog.at_level(logging.WARNING):
        asyncio.run(work)
    assert here.ended == 1
    assert "consumer groups are left after the downgrade of group.version: " in caplog.text
