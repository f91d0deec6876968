"""The way of the controller's requests to each broker: in order, each until it is answered or the broker is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from replication.controller_requests import BrokerRequest
from replication.local_broker import BrokerResponse

RETRY_DELAY_S = 0.1

_log = logging.getLogger(__name__)


class BrokerChannels(Protocol):
    """The way to each broker."""

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """Raises OSError when the broker cannot be reached now."""

    def close(self, broker_id: int) -> None:
        """Nothing more will be sent in this life of the broker, or in this term of the controller."""


class Sender:
    """One life of one broker: its requests in order, each until it is answered."""

    def __init__(
        self,
        broker_id: int,
        channels: BrokerChannels,
        answered: Callable[[int, BrokerRequest, BrokerResponse], None],
    ) -> None:
        self._broker_id = broker_id
        self._channels = channels
        self._answered = answered
        self._queue: asyncio.Queue[BrokerRequest] = asyncio.Queue()
        self.idle = True
        """Whether all that was put has been answered."""
        self._task = asyncio.create_task(self._run(), name=f"controller to broker {broker_id}")

    def put(self, request: BrokerRequest) -> None:
        self.idle = False
        self._queue.put_nowait(request)

    def cancel(self) -> None:
        self._task.cancel()
        self._channels.close(self._broker_id)

    async def _run(self) -> None:
        while True:
            request = await self._queue.get()
            told = ""
            while True:
                try:
                    response = await self._channels.send(self._broker_id, request)
                    break
                except OSError as error:
                    if str(error) != told:
                        told = str(error)
                        _log.info("Broker %d: %s; trying again every %g s", self._broker_id, told, RETRY_DELAY_S)
                    await asyncio.sleep(RETRY_DELAY_S)
            self.idle = self._queue.empty()
            self._answered(self._broker_id, request, response)
