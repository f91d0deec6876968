"""Sends the controller's requests to each broker: in order, each until the broker has responded or is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from gregor.replication.channels.messages import BrokerRequest, BrokerResponse

RETRY_DELAY_S = 0.1
_FIRST_CHECK_S, _POLL_EVERY_S = 0.001, 0.01

# Level in the log, and whether with the trace.
_NORMAL = logging.INFO, False
_SURPRISING = logging.ERROR, True

_log = logging.getLogger(__name__)


class BrokerChannels(Protocol):
    """The channel to each broker."""

    async def send(self, broker_id: int, request: BrokerRequest) -> BrokerResponse:
        """Return the response. Raises OSError where the broker cannot be reached now."""

    def close(self, broker_id: int) -> None:
        """Close the channel: no request follows under this registration of the broker, or from this controller."""


class Sender:
    """The requests to one broker under one registration, in order, each until the broker has responded."""

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
        """How many requests were put, and to how many of them the broker has responded."""
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
            logged = ""
            while True:
                try:
                    response = await self._channels.send(self._broker_id, request)
                    break
                except Exception as error:
                    # Of any kind: without this task no request would reach the broker any more.
                    if str(error) != logged:
                        logged = str(error)
                        level, trace = _NORMAL if isinstance(error, OSError) else _SURPRISING
                        _log.log(
                            level,
                            "Broker %d does not answer the controller: %s; the request is sent again every %g s",
                            self._broker_id, logged, RETRY_DELAY_S, exc_info=trace,
                        )  # fmt: skip
                await asyncio.sleep(RETRY_DELAY_S)
            self.answered_count += 1
            try:
                self._answered(self._broker_id, request, response)
            except Exception:
                _log.exception(
                    "Broker %d: its response to %s could not be handled", self._broker_id, type(request).__name__
                )


class BrokerSenders:
    """The senders of one controller epoch, by the broker's id and epoch."""

    def __init__(
        self, channels: BrokerChannels, answered: Callable[[int, BrokerRequest, BrokerResponse], None]
    ) -> None:
        """`answered` is called with each response."""
        self._channels = channels
        self._answered = answered
        self._senders: dict[tuple[int, int], Sender] = {}

    def put(self, broker_id: int, broker_epoch: int, request: BrokerRequest) -> None:
        """Send a request, after those before it, to a broker under this registration."""
        key = broker_id, broker_epoch
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = Sender(broker_id, self._channels, self._answered)
        sender.put(request)

    def keep(self, alive: Iterable[tuple[int, int]]) -> None:
        """Drop the requests to all brokers but these registered ones, by id and epoch."""
        for key in self._senders.keys() - set(alive):
            self._senders.pop(key).cancel()

    def cancel(self) -> None:
        """Drop all requests: this broker is no longer the controller."""
        self.keep(())

    async def until_answered(self, max_s: float) -> None:
        """Wait at most `max_s` until the requests that have been put by now are answered or dropped."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + max_s
        sent = [(sender, sender.count) for sender in self._senders.values()]
        pause_s = _FIRST_CHECK_S
        while any(sender.answered_count < count and not sender.ended for sender, count in sent):
            left_s = end_s - now_s()
            if left_s <= 0:
                break
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _POLL_EVERY_S)
