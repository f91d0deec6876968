"""A downgrade of a feature to level 0: each broker admits nothing new, ends what exists, and then the level is written.

The phases are in the node of the features (`DowngradePhase`), which each broker follows. `EndsWithLevel` ends on each
broker what needs the feature. `FeatureDowngrade` waits on the controller's broker: first until each live broker shows
the epoch of the phase in ApiVersions, so that nothing new is admitted on it any more, then until nothing is left there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from gregor.broker.log import logger
from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import ApiMessage, ApiVersionsRequest, ApiVersionsResponse
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.protocol.turns import Gate
    from gregor.replication.partition.metadata_image import MetadataImage
    from gregor.replication.store.features import FinalizedFeatures
    from gregor.replication.store.time_limit import TimeLimit

POLL_S = 0.1
MAX_NAMED = 5
FIRST_WITH_FEATURES = 3
"""Version of ApiVersions."""


class Broker(Protocol):
    """A live broker, this one or another."""

    @property
    def broker_id(self) -> int: ...

    @property
    def is_local(self) -> bool: ...

    async def send(self, request: ApiMessage) -> Any:
        """Return the response of another broker. Raises PeerError."""

    async def serves(self, api_key: int) -> bool:
        """Return whether another broker serves an API. Raises PeerError."""


class Subject(Protocol):
    """The groups or the transactions that a downgrade of one feature ends."""

    feature: str
    first_level: int
    """The lowest level of the feature at which new ones are admitted."""
    noun: str
    left_text: str
    """The consequence for those that could not be ended here, in the log."""

    async def end_here(self) -> None:
        """End those of this broker. Raises KafkaError."""

    async def lost_on(self, broker: Broker) -> list[str]:
        """Return the names of those that a downgrade would lose for their clients. Raises PeerError, KafkaError."""

    async def left_on(self, broker: Broker, waited_ms: int) -> list[str]:
        """Return the names of those that have not ended on a broker, after this time. Raises PeerError, KafkaError."""

    def refusal(self, names: set[str]) -> KafkaError:
        """Return the error of a safe downgrade that would lose these."""

    def unfinished(self, names: set[str]) -> KafkaError:
        """Return the error of a downgrade whose time is over while these have not ended."""


class EndsWithLevel:
    """Ends what this broker has when the level in force falls below the first one that admits it."""

    def __init__(
        self,
        features: FinalizedFeatures,
        subject: Subject,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._features = features
        self._subject = subject
        self._spawn = spawn
        self._level = features.level(subject.feature)
        features.on_changed.append(self._changed)

    def _changed(self) -> None:
        before, self._level = self._level, self._features.level(self._subject.feature)
        if before >= self._subject.first_level > self._level:
            self._spawn(self._end())

    async def _end(self) -> None:
        subject = self._subject
        try:
            await subject.end_here()
        except KafkaError as error:
            logger.warning(
                "%s are left after the downgrade of %s: %s; %s", subject.noun, subject.feature, error, subject.left_text
            )


class FeatureDowngrade:
    """Implements DowngradeWork of FeatureAdmin. `new_peer` makes a connection to another broker at a host and port."""

    def __init__(
        self,
        config: BrokerConfig,
        features: FinalizedFeatures,
        image: MetadataImage,
        subject: Subject,
        gate: Gate,
        *,
        new_peer: Callable[[str, int], Peer] | None = None,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
        poll_s: float = POLL_S,
    ) -> None:
        client_id, timeout_ms = f"broker-{config.broker_id}-features", config["request.timeout.ms"]
        self._broker_id = config.broker_id
        self._listener = config.inter_broker_listener_name
        self._features = features
        self._image = image
        self._subject = subject

        def connected(host: str, port: int) -> Peer:
            return Peer(host, port, client_id, timeout_ms, gate, security=security)

        self._new_peer = new_peer or connected
        self._poll_s = poll_s

    async def check(self, epoch: int, limit: TimeLimit) -> None:
        """Raise KafkaError: the refusal of a safe downgrade, BROKER_NOT_AVAILABLE if a broker has not answered, or does
        not know the phase, when the time is over."""
        with self._connections() as brokers:
            found = await self._on_all(brokers, epoch, self._subject.lost_on, limit)
        if found:
            raise self._subject.refusal(found)

    async def end(self, epoch: int, limit: TimeLimit) -> None:
        """Wait until nothing is left on any broker. Raises KafkaError: that of `unfinished` when the time is over,
        BROKER_NOT_AVAILABLE, and that of this broker's own coordinator."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await self._end_here(limit)

        async def left(broker: Broker) -> list[str]:
            return await self._subject.left_on(broker, int((loop.time() - begun_s) * 1000))

        with self._connections() as brokers:
            while found := await self._on_all(brokers, epoch, left, limit):
                if limit.left_ms <= 0:
                    raise self._subject.unfinished(found)
                await asyncio.sleep(self._poll_s)

    async def _end_here(self, limit: TimeLimit) -> None:
        """End those of this broker; a record for a partition that accepts none waits without end."""
        while True:
            try:
                async with asyncio.timeout(max(0, limit.left_ms) / 1000):
                    await self._subject.end_here()
                return
            except TimeoutError:
                if limit.left_ms <= 0:
                    raise self._subject.unfinished(set()) from None
            except KafkaError:
                if limit.left_ms <= 0:
                    raise
                await asyncio.sleep(self._poll_s)

    async def _on_all(
        self, brokers: _Brokers, epoch: int, find: Callable[[Broker], Awaitable[list[str]]], limit: TimeLimit
    ) -> set[str]:
        """Return what `find` returns for the live brokers, each of which is in the phase of this epoch by then."""
        found: set[str] = set()
        for broker in brokers.live():
            found.update(await self._until_known(broker, epoch, find, limit))
        return found

    async def _until_known(
        self, broker: _Broker, epoch: int, find: Callable[[Broker], Awaitable[list[str]]], limit: TimeLimit
    ) -> list[str]:
        while True:
            try:
                shown = self._features.finalized.epoch if broker.is_local else await broker.shown_epoch()
                if shown >= epoch:
                    return await find(broker)
                problem = f"its features have the epoch {shown}, not {epoch}"
            except (PeerError, KafkaError) as error:
                problem = str(error)
            if limit.left_ms <= 0:
                raise KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"the {self._subject.noun} of broker {broker.broker_id} are not known: {problem}",
                )
            await asyncio.sleep(self._poll_s)

    @contextmanager
    def _connections(self) -> Iterator[_Brokers]:
        brokers = _Brokers(self._broker_id, self._listener, self._image, self._new_peer)
        try:
            yield brokers
        finally:
            brokers.close()


class _Brokers:
    """The live brokers, with connections that last from one round to the next."""

    def __init__(
        self, broker_id: int, listener: str, image: MetadataImage, new_peer: Callable[[str, int], Peer]
    ) -> None:
        self._broker_id = broker_id
        self._listener = listener
        self._image = image
        self._new_peer = new_peer
        self._known: dict[tuple[int, str, int], _Broker] = {}

    def live(self) -> Iterator[_Broker]:
        """Iterate over the live brokers, this one first."""
        yield _Broker(self._broker_id)
        for broker_id, broker in sorted(self._image.brokers.items()):
            endpoint = broker.endpoints.get(self._listener)
            if broker_id == self._broker_id or endpoint is None:
                continue
            key = broker_id, endpoint.host, endpoint.port
            if key not in self._known:
                self._known[key] = _Broker(broker_id, self._new_peer(endpoint.host, endpoint.port))
            yield self._known[key]

    def close(self) -> None:
        for broker in self._known.values():
            broker.close()


class _Broker:
    """Implements Broker; without `peer` this one."""

    def __init__(self, broker_id: int, peer: Peer | None = None) -> None:
        self.broker_id = broker_id
        self._peer = peer

    @property
    def is_local(self) -> bool:
        return self._peer is None

    async def send(self, request: ApiMessage) -> Any:
        assert self._peer is not None
        return await self._peer.send(request)

    async def serves(self, api_key: int) -> bool:
        assert self._peer is not None
        return await self._peer.offered(api_key) is not None

    async def shown_epoch(self) -> int:
        """Return the epoch of the features that the broker shows to clients. Raises PeerError."""
        assert self._peer is not None
        request = ApiVersionsRequest(client_software_name="gregor", client_software_version="1")
        response: ApiVersionsResponse = await self._peer.send(request, FIRST_WITH_FEATURES)
        return response.finalized_features_epoch

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()


def named(names: set[str]) -> str:
    """Return the first names, for an error message."""
    return ", ".join(sorted(names)[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
