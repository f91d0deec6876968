"""Has the controller, which is another broker, create topics: of internal topics, and of those that are made because
somebody used their name. As brokers with ZooKeeper do it since Kafka 3 (AutoTopicCreationManager), by CreateTopics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from gregor.protocol.turns import Gate
from gregor.replication.channels.peer import Peer, PeerError

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.metadata_image import MetadataImage

TRIED_FOR_S = 5.0
KNOWN_WITHIN_S = 10.0
_RETRY_DELAY_S = 0.1
_DONE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})


class TopicRequests:
    """One connection to whichever broker is the controller, for one request at a time."""

    def __init__(self, config: BrokerConfig, image: MetadataImage, gate: Gate) -> None:
        self._image = image
        self._gate = gate
        self._broker_id = config.broker_id
        self._listener = config.inter_broker_listener_name
        self._timeout_ms = config["controller.socket.timeout.ms"]
        self._peer: Peer | None = None
        self._turn = asyncio.Lock()
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        image.on_update.append(self._updated)

    async def create_topic(self, name: str, partitions: int, factor: int, configs: Mapping[str, str]) -> None:
        """Create the topic and wait until its leaders are known here. Raises KafkaError: what the controller says, and
        LEADER_NOT_AVAILABLE if it cannot be reached or the leaders are not known in time; not if the topic exists."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
                )
            ],
            timeout_ms=self._timeout_ms // 2,
        )
        async with self._turn:
            (answer,) = (await self._answered(request)).topics
        if answer.error_code not in _DONE:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
        await self._until(lambda: self._is_led(name))

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _answered(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """The controller may just be moving: it is looked for for some time."""
        until = time.monotonic() + TRIED_FOR_S
        while True:
            try:
                response: CreateTopicsResponse = await self._controller().ask(request)
                why = "it is not the controller any more"
                if all(topic.error_code != ErrorCode.NOT_CONTROLLER for topic in response.topics):
                    return response
            except PeerError as error:
                why = str(error)
            if time.monotonic() > until:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the controller does not create topics now: {why}")
            await asyncio.sleep(_RETRY_DELAY_S)

    def _controller(self) -> Peer:
        broker = self._image.brokers.get(self._image.controller_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if endpoint is None or self._image.controller_id == self._broker_id:
            self.close()
            raise PeerError("it is not known which broker it is")
        address = endpoint.host, endpoint.port
        if self._peer is None or self._peer.address != address:
            self.close()
            self._peer = Peer(*address, f"broker-{self._broker_id}-topics", self._timeout_ms, self._gate)
        return self._peer

    # -- what this broker knows ------------------------------------------------------------------------------------

    def _is_led(self, name: str) -> bool:
        topic = self._image.topic(name)
        return topic is not None and all(partition.leader >= 0 for partition in topic.partitions.values())

    async def _until(self, holds: Callable[[], bool]) -> None:
        if holds():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = holds
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                await future
        except TimeoutError:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "its leaders are not known here yet") from None
        finally:
            del self._waiting[future]

    def _updated(self) -> None:
        for future, holds in self._waiting.items():
            if not future.done() and holds():
                future.set_result(None)
