"""Forwards the creation of topics to the controller while it is another broker: of internal topics, and of those that
are created because a client named them. Brokers with ZooKeeper do it so since Kafka 3 (AutoTopicCreationManager), by
CreateTopics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.protocol.channel_security import PLAINTEXT_CHANNEL, ChannelSecurity
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from gregor.protocol.turns import Gate
from gregor.replication.channels.controller_channel import ControllerChannel, retried
from gregor.replication.channels.peer import PeerError

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig
    from gregor.replication.partition.metadata_image import MetadataImage

KNOWN_WITHIN_S = 10.0
_DONE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})


class TopicForwarder:
    """Sends requests to the controller while it is another broker, one at a time."""

    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        gate: Gate,
        security: ChannelSecurity = PLAINTEXT_CHANNEL,
    ) -> None:
        self._image = image
        self._timeout_ms = config["controller.socket.timeout.ms"]
        self._channel = ControllerChannel(
            config.broker_id,
            image,
            None,
            config.inter_broker_listener_name,
            self._timeout_ms,
            gate,
            f"broker-{config.broker_id}-topics",
            security,
        )
        self._turn = asyncio.Lock()
        self._unreachable: KafkaError | None = None
        """The error of the last request with which no controller could be reached."""
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        image.on_update.append(self._updated)

    async def create_topic(self, name: str, partitions: int, factor: int, configs: Mapping[str, str]) -> bool:
        """Create the topic and wait until its leaders are known here; return False if it exists already. Raises
        KafkaError: the controller's own error, and LEADER_NOT_AVAILABLE if the controller cannot be reached or the
        leaders are not known in time. A call that waits for its turn while the controller cannot be reached ends with
        the call before it: many of them need no more time than one."""
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
        unreachable = self._unreachable
        async with self._turn:
            if self._unreachable is not None and self._unreachable is not unreachable:
                raise KafkaError(self._unreachable.code, self._unreachable.message)
            (answer,) = (await self._response(request)).topics
        if answer.error_code not in _DONE:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
        await self._until(lambda: self._is_led(name))
        return answer.error_code != ErrorCode.TOPIC_ALREADY_EXISTS

    def close(self) -> None:
        self._channel.close()

    async def _response(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        async def attempt() -> CreateTopicsResponse:
            response: CreateTopicsResponse = await self._channel.send(request)
            if any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics):
                raise PeerError("it is not the controller any more")
            return response

        try:
            return await retried(attempt)
        except PeerError as error:
            message = f"the controller does not create topics now: {error}"
            self._unreachable = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message) from None

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
