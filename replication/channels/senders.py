"""The way of the controller's requests to each broker: in order, each until it is answered or the broker is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from gregor.replication.channels.messages import BrokerRequest, BrokerResponse

RETRY_DELAY_S = 0.1

# Level in the log, and whether with the trace.
_NORMAL = logging.INFO, False
_SURPRISING = logging.ERROR, True

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
        self.count = self.answered_count = 0
        """Of the requests that were put, and of those of them that are answered."""
        self._task = asyncio.create_task(self._run(), name=f"controller to broker {broker_id}")

    def put(self, request: BrokerRequest) -> None:
        self.count += 1
        self._queue.put_nowait(request)

    @property
    def ended(self) -> bool:
        return self._task.done()

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
                except Exception as error:
                    # Whatever it is: without this task the broker would hear nothing any more.
                    if str(error) != told:
                        told = str(error)
                        level, trace = _NORMAL if isinstance(error, OSError) else _SURPRISING
                        text = "Broker %d does not answer the controller: %s; the request is sent again every %g s"
                        _log.log(level, text, self._broker_id, told, RETRY_DELAY_S, exc_info=trace)
                await asyncio.sleep(RETRY_DELAY_S)
            self.answered_count += 1
            try:
                self._answered(self._broker_id, request, response)
            except Exception:
                _log.exception(
                    "Broker %d: its response to %s could not be handled", self._broker_id, type(request).__name__
                )
