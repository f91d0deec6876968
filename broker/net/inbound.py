"""What comes into a connection: the memory of an unfinished request, its place in the receive budget, and when to read.

A request that is whole in one read stays in the buffer that all connections share; of a longer one the bytes are kept
in an owned buffer (net.receive_buffers), which goes back to the pool as soon as no partial frame is left in it.

Reading stops while a request is at work and another one is already here, while the receive budget has no room for a
long frame, and, where `queued.max.requests` wait already, while a request is at work at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gregor.broker.net.receive_buffers import SHARED_BYTES, Admission, OwnedBuffer
from gregor.broker.registry import entry_of
from gregor.protocol.framing import HEAD_BYTES, SIZE_BYTES, FramingError, Receiver, request_head

if TYPE_CHECKING:
    from gregor.broker.net.context import ConnectionContext

MIN_PROGRESS_BYTES = 64 * 1024
"""How much of a long frame has to arrive between two sweeps while others wait for the memory that it holds."""


class Inbound:
    """The receiving side of one connection."""

    __slots__ = (
        "_admission",
        "_budget",
        "_closed",
        "_handlers",
        "_held",
        "_pool",
        "_requests",
        "_seen_bytes",
        "_stalled_sweeps",
        "_transport",
        "busy",
        "expects_long_frame",
        "owned",
        "queued",
        "reading",
        "receiver",
    )

    def __init__(self, broker: ConnectionContext, transport: asyncio.Transport) -> None:
        self._pool = broker.buffers
        self._budget = broker.receive_budget
        self._requests = broker.connections
        self._handlers = broker.handlers
        self._transport = transport
        self._admission: Admission | None = None
        self._held: Admission | None = None
        self._seen_bytes = self._stalled_sweeps = 0
        self._closed = False
        self.receiver = Receiver(broker.max_request_bytes)
        self.owned: OwnedBuffer | None = None
        self.expects_long_frame = False
        self.busy = False
        """A request is at work, and the next one must not be dispatched before it is answered."""
        self.queued = False
        """A whole request is here and waits for another one of this connection."""
        self.reading = True

    def close(self) -> None:
        """Give everything back but what `hold` keeps."""
        self._closed = True
        self.unqueue()
        self.release()

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """Where the next bytes go, if not simply into the shared buffer."""
        owned, receiver = self.owned, self.receiver
        if owned is None:
            owned = self._pool.take_warm()
            if owned is None:
                return self._pool.shared_view
            self.owned = owned
            receiver.clear()
        elif self._admission is None:
            return owned.view[receiver.end : SHARED_BYTES]
        elif receiver.end == owned.capacity:
            owned.grow(self._pool.next_capacity(owned, receiver.frame_bytes))
        return owned.view[receiver.end :]

    def received(self, size_bytes: int) -> bool:
        """Count bytes that came into the owned buffer; returns whether there is something to do about them."""
        receiver = self.receiver
        receiver.end += size_bytes
        # Without a place in the budget a long frame is received up to SHARED_BYTES, then it has to ask for one.
        return (
            not size_bytes
            or receiver.end - receiver.begin >= receiver.frame_bytes
            or (self._admission is None and receiver.end >= SHARED_BYTES)
        )

    def keep(self, view: memoryview, start: int, end: int) -> None:
        """Keep `view[start:end]`, which begins with a frame that is not whole or cannot be dispatched yet. Raises
        FramingError."""
        receiver, owned = self.receiver, self.owned
        receiver.keep(view, start, end)
        if owned is None:
            owned = self.owned = self._pool.take()
            owned.view[: end - start] = view[start:end]
        else:
            owned.compact(start, end)
        frame_bytes, whole = receiver.frame_bytes, receiver.is_whole
        if self._admission is not None and self._admission.frame_bytes != frame_bytes:
            self._admission.release()
            self._admission = None
        full = False
        if frame_bytes > SHARED_BYTES and not whole and self._admission is None:
            self._check_head(owned.view)
            full = receiver.end >= SHARED_BYTES
            # Behind a request at work there is nothing to receive for yet: no place in the budget either.
            if full and not self.busy:
                self._admission = self._budget.admit(frame_bytes, self.resume_reading)
                self._seen_bytes, self._stalled_sweeps = receiver.end, 0
        if whole and not self.queued:
            self.queued = True
            self._requests.queued += 1
        admission = self._admission
        if whole or (full and admission is None) or (admission is not None and not admission.admitted):
            self.pause_reading()
        elif not self.reading:
            self.resume_reading()

    def _check_head(self, view: memoryview) -> None:
        """Refuse a long frame of an unknown API before it is received, and before it has a place in the budget."""
        if self.receiver.end >= SIZE_BYTES + HEAD_BYTES:
            key, version, _ = request_head(view, SIZE_BYTES)
            try:
                entry_of(self._handlers, key, version)
            except FramingError as error:
                raise FramingError(f"a request of {self.receiver.frame_bytes} bytes: {error}") from None

    def release(self) -> None:
        """No partial frame is left: the buffer and its place in the budget are free for others."""
        if self.owned is not None:
            self._pool.give_back(self.owned)
            self.owned = None
        if self._admission is not None:
            self._admission.release()
            self._admission = None
        if not self.reading:
            self.resume_reading()

    def take_place(self) -> Admission | None:
        """The place in the budget, which is released by the caller from now on."""
        admission, self._admission = self._admission, None
        return admission

    # ---- when to read ---------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        if self.reading and not self._closed:
            self.reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        full = self.busy and self._requests.queued >= self._requests.max_queued
        if not (self.reading or self._closed or full):
            self.reading = True
            self._transport.resume_reading()

    def unqueue(self) -> None:
        """What is here is about to be dispatched, or never will be."""
        if self.queued:
            self.queued = False
            self._requests.queued -= 1

    def work(self) -> None:
        """A request is at work that the next ones have to wait for; where enough of them wait, no more are read."""
        self.busy = True
        if self._requests.queued >= self._requests.max_queued:
            self.pause_reading()

    def hold(self) -> None:
        """The same for a request that keeps its place in the budget, even if the connection ends meanwhile."""
        self.busy = True
        self._held = self.take_place()

    def end_hold(self) -> None:
        self.busy = False
        if self._held is not None:
            self._held.release()
            self._held = None

    @property
    def is_contended(self) -> bool:
        """Whether a frame that is still coming holds memory that others wait for."""
        admission = self._admission
        return admission is not None and admission.admitted and admission.contended and not self.busy

    def is_stalled(self, max_sweeps: int) -> bool:
        """Whether next to nothing of a contended frame came for `max_sweeps` sweeps; called once in each."""
        progress_bytes, self._seen_bytes = self.receiver.end - self._seen_bytes, self.receiver.end
        self._stalled_sweeps = 0 if progress_bytes >= MIN_PROGRESS_BYTES else self._stalled_sweeps + 1
        return self._stalled_sweeps > max_sweeps
