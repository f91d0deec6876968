"""When group.version falls to 0, the consumer groups of every broker become classic ones; their offsets stay.

A broker of Apache Kafka 3.9, which may join after the downgrade, ignores the records of consumer groups. Members of the
classic protocol stay in their groups; those of the consumer protocol lose their membership, as no broker serves them
any more. A safe downgrade is refused while there are such members; none may join while it is under way.
"""

from __future__ import annotations

from typing import Protocol

from gregor.broker.features.downgrade import Broker, named
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gregor.replication.store.features import CONSUMER_PROTOCOL, GROUP_VERSION

GROUPS_PER_REQUEST = 100
CONSUMER_TYPE, EMPTY_STATE = "consumer", "empty"
LIST_VERSION = 5
_CLASSIC_MEMBER = 0


class Groups(Protocol):
    """The group coordinator of this broker."""

    async def list_groups(self, request: ListGroupsRequest, version: int) -> ListGroupsResponse: ...
    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse: ...
    async def end_consumer_groups(self) -> None: ...


class ConsumerGroupsOfBrokers:
    """Implements Subject of a downgrade."""

    feature = GROUP_VERSION
    first_level = CONSUMER_PROTOCOL
    noun = "consumer groups"
    left_text = "those of a partition that is loading become classic groups after that"

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def end_here(self) -> None:
        await self._groups.end_consumer_groups()

    async def lost_on(self, broker: Broker) -> list[str]:
        """Return the groups that have members of the consumer protocol.

        A broker whose group.coordinator.rebalance.protocols lack it describes no consumer group. It may have loaded
        some, whose members find no coordinator there: each counts that is not empty."""
        names = [group.group_id for group in await self._list(broker) if group.group_state.lower() != EMPTY_STATE]
        if not broker.is_local and not await broker.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
            return names
        found = []
        for first in range(0, len(names), GROUPS_PER_REQUEST):
            request = ConsumerGroupDescribeRequest(group_ids=names[first : first + GROUPS_PER_REQUEST])
            if broker.is_local:
                response = await self._groups.consumer_group_describe(request)
            else:
                response = await broker.send(request)
            for group in response.groups:
                if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    continue  # it has been deleted, or is a classic group, since it was listed
                if group.error_code:
                    raise KafkaError(ErrorCode(group.error_code))
                if any(member.member_type != _CLASSIC_MEMBER for member in group.members):
                    found.append(group.group_id)
        return found

    async def left_on(self, broker: Broker, _waited_ms: int) -> list[str]:
        return [group.group_id for group in await self._list(broker)]

    def refusal(self, names: set[str]) -> KafkaError:
        return KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"{len(names)} groups have members of the consumer protocol ({named(names)}), which no broker would serve"
            " any more: stop them or start them again with group.protocol=classic, or give --unsafe to remove them from"
            " their groups, which keep their offsets",
        )

    def unfinished(self, names: set[str]) -> KafkaError:
        return KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{len(names)} consumer groups are not classic ones yet ({named(names)}): try again when all partitions of"
            " __consumer_offsets have their min.insync.replicas",
        )

    async def _list(self, broker: Broker) -> list[ListGroupsResponse.ListedGroup]:
        request = ListGroupsRequest(types_filter=[CONSUMER_TYPE])
        if broker.is_local:
            response = await self._groups.list_groups(request, LIST_VERSION)
        else:
            response = await broker.send(request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        # A broker that does not know the types lists all groups; it has no consumer groups.
        return [group for group in response.groups if group.group_type.lower() == CONSUMER_TYPE]
