"""When group.version falls to 0, the consumer groups of every broker become classic ones; their offsets stay.

A broker of Apache Kafka 3.9, which may join after the downgrade, ignores the records of consumer groups. At level 0
each coordinator turns its groups into classic ones (`ConsumerGroupsEnd`): members of the classic protocol stay, those
of the consumer protocol lose their membership, as no broker serves them any more. A safe downgrade is refused while
there are such members. The controller's broker responds when no broker lists a consumer group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.log import logger
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from gregor.replication.channels.peer import Peer, PeerError
from gregor.replication.store.features import CONSUMER_PROTOCOL, GROUP_VERSION

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Gate
    from gregor.replication.admin.features import Downgrade
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.store.features import FinalizedFeatures

POLL_S = 0.1
MAX_NAMED = 5
GROUPS_PER_REQUEST = 100
CONSUMER_TYPE = "consumer"
LIST_VERSION = 5
_CLASSIC_MEMBER = 0


class Groups(Protocol):
    """The group coordinator of this broker."""

    async def list_groups(self, request: ListGroupsRequest, version: int) -> ListGroupsResponse: ...
    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse: ...
    async def end_consumer_groups(self) -> None: ...


class ConsumerGroupsEnd:
    """Turns the consumer groups that this broker coordinates into classic ones when the level falls."""

    def __init__(
        self,
        features: FinalizedFeatures,
        groups: Groups,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._features = features
        self._groups = groups
        self._spawn = spawn
        self._level = features.group_version()
        features.on_changed.append(self._changed)

    def _changed(self) -> None:
        before, self._level = self._level, self._features.group_version()
        if before >= CONSUMER_PROTOCOL > self._level:
            self._spawn(self._end())

    async def _end(self) -> None:
        try:
            await self._groups.end_consumer_groups()
        except KafkaError as error:
            logger.warning(
                "consumer groups are left after the downgrade of %s: %s; those of a partition that is loading become"
                " classic groups after that",
                GROUP_VERSION,
                error,
            )


class GroupDowngrade:
    """Steps of FeatureAdmin on the controller's broker. `new_peer` makes a connection to a host and port."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        groups: Groups,
        gate: Gate,
        *,
        new_peer: Callable[[str, int], Peer] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        client_id, timeout_ms = f"broker-{config.broker_id}-features", config["request.timeout.ms"]
        self._broker_id = config.broker_id
        self._listener = config.inter_broker_listener_name
        self._image = image
        self._groups = groups
        self._new_peer = new_peer or (lambda host, port: Peer(host, port, client_id, timeout_ms, gate))
        self._poll_s = poll_s

    async def prepare(self, downgrade: Downgrade, timeout_ms: int) -> None:
        """Refuse a safe downgrade while a group has members of the consumer protocol: NON_EMPTY_GROUP. Raises
        BROKER_NOT_AVAILABLE if the groups of a broker are not known when the time is over."""
        if downgrade.name != GROUP_VERSION or downgrade.after or not downgrade.is_safe:
            return
        found = await self._on_all_brokers(self._with_members, timeout_ms)
        if found:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"{len(found)} groups have members of the consumer protocol ({_named(found)}), which no broker would"
                " serve any more: stop them or start them again with group.protocol=classic, or give --unsafe to remove"
                " them from their groups, which keep their offsets",
            )

    async def complete(self, downgrade: Downgrade, timeout_ms: int) -> None:
        """Wait until no broker has a consumer group. Raises KafkaError REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE."""
        if downgrade.name != GROUP_VERSION or downgrade.after:
            return
        until_s = time.monotonic() + timeout_ms / 1000
        while True:
            found = await self._on_all_brokers(self._listed, int((until_s - time.monotonic()) * 1000))
            if not found:
                return
            if time.monotonic() >= until_s:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{len(found)} consumer groups are not classic ones yet ({_named(found)}); before a broker of"
                    " Apache Kafka joins, wait until `gregor groups --list --type consumer` is empty",
                )
            await asyncio.sleep(self._poll_s)

    async def _on_all_brokers(
        self, fetch: Callable[[_Broker], Coroutine[Any, Any, list[str]]], timeout_ms: int
    ) -> set[str]:
        until_s = time.monotonic() + timeout_ms / 1000
        found: set[str] = set()
        for broker in self._brokers():
            try:
                found.update(await self._until_known(broker, fetch, until_s))
            finally:
                broker.close()
        return found

    async def _until_known(
        self, broker: _Broker, fetch: Callable[[_Broker], Coroutine[Any, Any, list[str]]], until_s: float
    ) -> list[str]:
        while True:
            try:
                return await fetch(broker)
            except (PeerError, KafkaError) as error:
                if time.monotonic() >= until_s:
                    raise KafkaError(
                        ErrorCode.BROKER_NOT_AVAILABLE,
                        f"the consumer groups of broker {broker.broker_id} are not known: {error}",
                    ) from None
            await asyncio.sleep(self._poll_s)

    def _brokers(self) -> Iterable[_Broker]:
        yield _Broker(self._broker_id, self._groups)
        for broker_id, broker in sorted(self._image.brokers.items()):
            endpoint = broker.endpoints.get(self._listener)
            if broker_id != self._broker_id and endpoint is not None:
                yield _Broker(broker_id, self._groups, self._new_peer(endpoint.host, endpoint.port))

    @staticmethod
    async def _listed(broker: _Broker) -> list[str]:
        return await broker.list_groups()

    @staticmethod
    async def _with_members(broker: _Broker) -> list[str]:
        return await broker.groups_with_members()


class _Broker:
    """One broker; without `peer` this one. Methods raise PeerError, KafkaError."""

    def __init__(self, broker_id: int, groups: Groups, peer: Peer | None = None) -> None:
        self.broker_id = broker_id
        self._groups = groups
        self._peer = peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def list_groups(self) -> list[str]:
        request = ListGroupsRequest(types_filter=[CONSUMER_TYPE])
        if self._peer is None:
            response = await self._groups.list_groups(request, LIST_VERSION)
        else:
            response = await self._peer.send(request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        # A broker that does not know the types lists all groups; it has no consumer groups.
        return [group.group_id for group in response.groups if group.group_type.lower() == CONSUMER_TYPE]

    async def groups_with_members(self) -> list[str]:
        """Return the groups that have members of the consumer protocol."""
        names = await self.list_groups()
        found = []
        for first in range(0, len(names), GROUPS_PER_REQUEST):
            request = ConsumerGroupDescribeRequest(group_ids=names[first : first + GROUPS_PER_REQUEST])
            if self._peer is None:
                response = await self._groups.consumer_group_describe(request)
            else:
                response = await self._peer.send(request)
            for group in response.groups:
                if group.error_code:
                    raise KafkaError(ErrorCode(group.error_code))
                if any(member.member_type != _CLASSIC_MEMBER for member in group.members):
                    found.append(group.group_id)
        return found


def _named(groups: set[str]) -> str:
    return ", ".join(sorted(groups)[:MAX_NAMED]) + (", ..." if len(groups) > MAX_NAMED else "")
