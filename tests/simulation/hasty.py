"""A producer that does not wait: up to five batches of a partition are under way on a connection, as with real clients.

After an error, librdkafka waits for the batches under way, and repeats them in order. The Java client continues at the
new leader at once, with batches that were never sent; it repeats others only when all batches before them are answered.
Neither may ever receive the error that one of its own batches is missing: it would continue with another epoch, and
store a second time the batches that were under way elsewhere. (The error is allowed where compaction or DeleteRecords
removed batches and a restart lost the knowledge of them.)
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from gregor.protocol.client import InFlightRequests
from gregor.protocol.errors import ErrorCode
from gregor.protocol.framing import SIZE_BYTES
from gregor.protocol.messages import ProduceRequest, ProduceResponse
from tests.simulation.clients import FATAL, PRODUCE_VERSION, TIMEOUT_MS, Key, Producer
from tests.simulation.ledger import is_compacted
from tests.simulation.node import host_of

if TYPE_CHECKING:
    from tests.simulation.world import World

UNDER_WAY = 5
WAITING = 30
PATIENCE = 300
"""Attempts with one batch while the cluster is calm."""


class _Pipe(asyncio.BufferedProtocol):
    """A connection that matches responses to requests by their correlation ids."""

    def __init__(self) -> None:
        self.lost = False
        self._buffer = bytearray(1 << 16)
        self._end = 0
        self._transport: asyncio.Transport | None = None
        self._asked: dict[int, asyncio.Future[ProduceResponse]] = {}
        self._requests = InFlightRequests("hasty")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        while self._end >= SIZE_BYTES:
            size = SIZE_BYTES + int.from_bytes(self._buffer[:SIZE_BYTES])
            if self._end < size:
                return
            frame = bytes(self._buffer[SIZE_BYTES:size])
            self._buffer[: self._end - size] = self._buffer[size : self._end]
            self._end -= size
            correlation_id, response, _ = self._requests.response(frame)
            answered = self._asked.pop(correlation_id)
            if not answered.done():
                answered.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError("lost"))
        self._asked.clear()

    def send(self, request: ProduceRequest) -> asyncio.Future[ProduceResponse]:
        assert self._transport is not None
        correlation_id, frame = self._requests.frame(request, PRODUCE_VERSION)
        self._transport.write(frame)
        asked = self._asked[correlation_id] = asyncio.get_running_loop().create_future()
        return asked

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)


class _Batch:
    def __init__(self, sequence: int, values: list[bytes], request: ProduceRequest) -> None:
        self.sequence = sequence
        self.values = values
        self.request = request
        self.attempts = 0
        self._calm_attempts = 0
        self.broker_id = -1
        """The broker to which the batch is under way."""

    def has_failed_too_often(self) -> bool:
        """Count an attempt that failed while the cluster was calm."""
        self._calm_attempts += 1
        return self._calm_attempts > PATIENCE


class _Lane:
    """The batches of one partition that are not acknowledged yet, in their order."""

    def __init__(self) -> None:
        self.batches: list[_Batch] = []
        self.draining = False
        self.not_before_s = 0.0
        self.doubts_leader = False
        self.is_over = False

    @property
    def places(self) -> list[int]:
        return [batch.broker_id for batch in self.batches if batch.broker_id >= 0]


class HastyProducer(Producer):
    """Idempotent; ends when everything is acknowledged."""

    def __init__(self, world: World, rng: random.Random, name: str) -> None:
        super().__init__(world, rng, name, idempotent=True)
        self._drains = rng.random() < 0.5
        self._timeout_s = rng.choice((1.5, 6.0))
        self._pipes: dict[int, _Pipe] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._given_up = False

    async def run(self) -> None:
        await self.get_id()
        async with asyncio.TaskGroup() as group:
            for key in self.world.keys:
                group.create_task(self._serve(key, _Lane()))

    async def _serve(self, key: Key, lane: _Lane) -> None:
        while (self.world.producing or lane.batches) and not self._given_up:
            if self.world.producing and not lane.is_over and len(lane.batches) < WAITING and self.rng.random() < 0.7:
                lane.batches.append(_Batch(*self.next_batch(key)))
            if lane.doubts_leader or self.rng.random() < 0.1:
                lane.doubts_leader = False
                await self.refresh()
            if asyncio.get_running_loop().time() >= lane.not_before_s:
                await self._pump(key, lane)
            await asyncio.sleep(self.world.produce_every_s * (self.rng.random() if self.rng.random() < 0.5 else 0.1))

    async def _pump(self, key: Key, lane: _Lane) -> None:
        """Send what may be sent now."""
        leader, _ = await self.leader(key)
        elsewhere = any(place != leader for place in lane.places)
        if self._drains and (lane.draining or elsewhere):
            if lane.places:
                return
            lane.draining = False
        pipe = self._pipes.get(leader)
        if pipe is None or pipe.lost:
            try:
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    _, opened = await asyncio.get_running_loop().create_connection(_Pipe, host_of(leader), 9092)
            except (OSError, TimeoutError):
                self._failed(lane)
                return
            pipe = self._pipes.get(leader)
            if pipe is None or pipe.lost:
                pipe = self._pipes[leader] = opened
            else:
                opened.close()  # one for all partitions, which another may have opened by now
        for batch in lane.batches:
            if lane.places.count(leader) >= UNDER_WAY or (batch.attempts and batch is not lane.batches[0]):
                # (Of what was sent before, and is under way no more, only the first of all may go.)
                if batch.broker_id < 0:
                    return
                continue
            if batch.broker_id < 0:
                batch.broker_id = leader
                batch.attempts += 1
                asked = pipe.send(batch.request)
                task = asyncio.get_running_loop().create_task(self._await_answer(key, lane, batch, pipe, asked))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _await_answer(
        self, key: Key, lane: _Lane, batch: _Batch, pipe: _Pipe, asked: asyncio.Future[ProduceResponse]
    ) -> None:
        place, sent_s = batch.broker_id, asyncio.get_running_loop().time()
        code, answered = "", None
        try:
            async with asyncio.timeout(self._timeout_s):
                answered = (await asked).responses[0].partition_responses[0]
        except (ConnectionError, TimeoutError) as error:
            code = repr(error)
            pipe.close()
        else:
            code = ErrorCode(answered.error_code).name
        batch.broker_id = -1
        ledger = self.world.ledger
        what = f"{key[0]}-{key[1]} {batch.values[0].decode()}x{len(batch.values)}"
        self.world.trace(f"{self.name} {what}, sequence {batch.sequence}, at {place}: {code}")
        if answered is not None and answered.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if answered.error_code == ErrorCode.NONE:
                ledger.acknowledged(key, answered.base_offset, batch.values, self.name, sent_s)
            else:
                ledger.stored_before(key, batch.values)
            if batch in lane.batches:
                lane.batches.remove(batch)
            return
        is_gap = answered is not None and answered.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if is_gap and (is_compacted(key) or ledger.deleted_below(key)):
            lane.batches.clear()
            lane.is_over = True
            return
        if answered is not None and answered.error_code in FATAL:
            ledger.violation(f"{self.name}: {code} for {what}, sequence {batch.sequence}")
            self._given_up = True
        elif self.world.is_calm and batch.has_failed_too_often():
            ledger.violation(f"{self.name}: {what} is not appended though all is well: {code}")
            self._given_up = True
        self._failed(lane)

    def _failed(self, lane: _Lane) -> None:
        lane.draining = lane.doubts_leader = True
        lane.not_before_s = asyncio.get_running_loop().time() + 0.05 + 0.1 * self.rng.random()
