"""The routes of Produce requests where an authorizer is configured: for topics to which the client may write.

A route stands for the decision, so an append by a route asks the authorizer for nothing but its generation: a change of
the rules ends all routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.authorization.model import Operation, ResourceType
from gregor.broker.context import Call
from gregor.broker.net.produce_fast_path import PendingProduce, ProduceRoutes
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from gregor.broker.authorization.model import Authorizer
    from gregor.broker.context import ClientConnection
    from gregor.broker.net.context import ConnectionContext
    from gregor.protocol.messages import ProduceRequest


class AuthorizedRoutes(ProduceRoutes):
    """The routes of one connection."""

    __slots__ = ("_authorizer", "_generation")

    def __init__(self, broker: ConnectionContext, authorizer: Authorizer, client: ClientConnection) -> None:
        super().__init__(broker, client)
        self._authorizer = authorizer
        self._generation = authorizer.generation

    def produce(
        self, view: memoryview, start: int, stop: int, version: int, correlation_id: int
    ) -> bytes | PendingProduce | None:
        if self._generation != self._authorizer.generation:
            self._begin_anew()
            return None
        return super().produce(view, start, stop, version, correlation_id)

    def learn(
        self,
        request: ProduceRequest,
        view: memoryview,
        start: int,
        stop: int,
        version: int,
        client_id: str | None = None,
    ) -> None:
        if self._generation != self._authorizer.generation:
            self._begin_anew()
        client = self._client
        if len(request.topic_data) != 1 or client is None:
            return
        topic = request.topic_data[0]
        name: str | None = topic.name
        if topic.topic_id != ZERO_UUID:
            name = self._broker.metadata.topic_name(topic.topic_id)
        call = Call(client, ApiKey.PRODUCE, version, 0, None)
        # The guard, which serves the request next, logs a denial.
        if name is not None and self._authorizer.allows(
            call, Operation.WRITE, ResourceType.TOPIC, name, logs_denial=False
        ):
            super().learn(request, view, start, stop, version, client_id)

    def _begin_anew(self) -> None:
        self.clear()
        self._generation = self._authorizer.generation
