"""How the controller reaches this broker when it is this broker: its requests are carried out in process.

The messages are the same objects that go over the network to other brokers, and their handlers the same functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

if TYPE_CHECKING:
    from replication.metadata_image import MetadataImage
    from replication.replica_manager import ReplicaManager


class LocalChannel:
    """The controller's port to brokers, for a cluster whose only broker is this one."""

    def __init__(self, broker_id: int, replicas: ReplicaManager, metadata: MetadataImage, waits: MetadataWaits) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._waits = waits

    async def send(self, broker_id: int, request: Any) -> Any:
        """The response. Raises ConnectionError for another broker: there is no way to one yet."""
        if broker_id != self._broker_id:
            raise ConnectionError(f"broker {broker_id} cannot be reached: this broker runs alone")
        if isinstance(request, LeaderAndIsrRequest):
            return self._replicas.apply(request)
        if isinstance(request, StopReplicaRequest):
            return self._replicas.stop(request)
        assert isinstance(request, UpdateMetadataRequest)
        response = self._metadata.apply(request)
        self._waits.look()
        return response


class MetadataWaits:
    """Requests that are answered once the metadata image shows what they asked for."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], Callable[[], bool]] = {}

    def look(self) -> None:
        """The image changed."""
        for future, shown in list(self._waiting.items()):
            if not future.done() and shown():
                future.set_result(True)

    async def until(self, shown: Callable[[], bool], timeout_ms: int) -> bool:
        """Whether `shown()` became true within the time."""
        if shown():
            return True
        if timeout_ms <= 0:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = shown
        try:
            return await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
